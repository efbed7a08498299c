"""The host's half of the agent protocol: frames in, calls out, bounded everywhere."""
