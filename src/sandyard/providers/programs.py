"""Programs on this host: run to their end with a timeout, the whole process group ended with them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sandyard.errors import HostError
from sandyard.providers.provider import Output

TIMED_OUT = 124


def require(tool: str, package: str) -> None:
    """Check that a program is there.

    Raises:
        HostError: it is not.
    """
    if shutil.which(tool) is None:
        raise HostError(f"{tool} is not on PATH.", hint=f"Install the package {package}, or leave its provider out.")


async def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Output:
    """Run a program; at its timeout, or when the caller is cancelled, its process group is killed."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate(stdin)
    except TimeoutError:
        return Output(TIMED_OUT, timed_out=True)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    code = process.returncode or 0
    return Output(code if code >= 0 else 128 - code, stdout, stderr)
