"""The command line: parse, call, print; one file per noun."""
