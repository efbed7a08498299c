"""How a sandbox is isolated: the Driver protocol and those who keep it."""
