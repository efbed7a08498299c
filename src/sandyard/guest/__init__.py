"""The host's half of the agent protocol: frames in, calls out, bounded everywhere."""

from sandyard.guest.answers import (
    Entry,
    EntryType,
    FileInfo,
    Hello,
    Hook,
    Info,
    ProcessEntry,
    Restored,
    Spawned,
    TarResult,
)
from sandyard.guest.guest import Guest
from sandyard.guest.process import STDERR, STDIN, STDOUT, ExecResult, Process, PtySize
from sandyard.guest.transfer import Connection, Download

__all__ = [
    "STDERR",
    "STDIN",
    "STDOUT",
    "Connection",
    "Download",
    "Entry",
    "EntryType",
    "ExecResult",
    "FileInfo",
    "Guest",
    "Hello",
    "Hook",
    "Info",
    "Process",
    "ProcessEntry",
    "PtySize",
    "Restored",
    "Spawned",
    "TarResult",
]
