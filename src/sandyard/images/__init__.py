"""OCI references and archives become unpacked root file systems, cached by digest."""
