"""How a sandbox is isolated: the Driver protocol and those who keep it."""

from sandyard.drivers.driver import (
    After,
    Driver,
    ExitReason,
    Machine,
    MachineExit,
    MachineSpec,
    MachineUsage,
    NetworkSpec,
)

__all__ = [
    "After",
    "Driver",
    "ExitReason",
    "Machine",
    "MachineExit",
    "MachineSpec",
    "MachineUsage",
    "NetworkSpec",
]
