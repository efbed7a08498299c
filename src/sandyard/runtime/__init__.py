"""A sandbox's life: states, clocks, snapshots, forks, recovery; used in process by the CLI and by a server."""
