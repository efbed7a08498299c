"""One command in a sandbox, from the command line: its streams are ours, and so is its exit code."""

from __future__ import annotations

from sandyard.cli import terminal
from sandyard.cli.exits import TIMED_OUT
from sandyard.cli.messages import say
from sandyard.runtime import Command, Sandbox


async def run_command(sandbox: Sandbox, command: Command) -> int:
    """Run it to its end, and return the exit code for ours; what killed it is said on stderr."""
    async with sandbox.exec(command) as process:
        result = await terminal.connect(process, stdin=command.stdin, pty=command.pty is not None)
    if result.timed_out:
        say(f"the command was killed: it had not ended after {command.timeout_s:g} s")
        return TIMED_OUT
    if result.oom_killed:
        say(f"the command was killed: the sandbox reached its limit of {sandbox.spec.memory_mib} MiB [out-of-memory]")
    return result.exit_code
