"""A sandbox's life: states, clocks, snapshots, forks, recovery; used in process by the CLI and by a server."""

from sandyard.runtime.clock import Clock, SystemClock
from sandyard.runtime.command import Command
from sandyard.runtime.runtime import Runtime
from sandyard.runtime.sandbox import Sandbox
from sandyard.runtime.services import Settings
from sandyard.runtime.spec import SandboxSpec
from sandyard.runtime.states import Boot, Doing, State

__all__ = [
    "Boot",
    "Clock",
    "Command",
    "Doing",
    "Runtime",
    "Sandbox",
    "SandboxSpec",
    "Settings",
    "State",
    "SystemClock",
]
