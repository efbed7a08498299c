"""How fast sandbox providers are, and whether the measurement can be believed."""
