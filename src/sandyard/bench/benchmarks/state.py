"""The state that snapshots and forks must carry over: seeded data on disk, and a token in a running process."""

from __future__ import annotations

import hashlib

from sandyard.bench.outcomes import ProviderFailed
from sandyard.bench.session import Session

CHECK = ("sh", "-c", "sha256sum data | cut -c 1-64; cat /proc/$(cat holder.pid)/cmdline | tr '\\0' ' '")
"""Prints the data's hash and the command line of the process that holds the token."""

_HOLD = 'setsid nohup sh -c \'echo $$ > holder.pid; exec sleep "1000$0"\' "$1" > /dev/null 2>&1 < /dev/null &'


async def plant(session: Session, sandbox: str, mebibytes: int) -> tuple[str, str]:
    """Write random data and start a process that holds a token; return the hash and the token."""
    data = session.random.randbytes(mebibytes << 20)
    token = f"{session.random.randrange(10**6):06}"
    await session.provider.write(sandbox, "data", data)
    await session.run(sandbox, ["sh", "-c", _HOLD, "sh", token])
    await session.run(sandbox, ["sh", "-c", "until test -s holder.pid; do sleep 0.01; done"])
    return hashlib.sha256(data).hexdigest(), token


def compare(stdout: bytes, digest: str, token: str) -> None:
    """Check what ``CHECK`` printed.

    Raises:
        ProviderFailed: the data or the process is not what was planted.
    """
    words = stdout.decode(errors="replace").split()
    if words[:1] != [digest]:
        raise ProviderFailed("the data after it is not the data before")
    if f"1000{token}" not in words:
        raise ProviderFailed("the process that held the token is gone")
