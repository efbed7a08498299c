"""Programs of our own that run inside sandboxes; their bytes are part of the procedure's hash."""

from __future__ import annotations

from pathlib import Path

from sandyard.bench.outcomes import Missed
from sandyard.bench.session import Session

FOLDER = Path(__file__).parent.parent / "programs"


def program(name: str) -> bytes:
    """Return a program's source."""
    return (FOLDER / name).read_bytes()


async def build(session: Session, sandbox: str, name: str) -> str:
    """Put a C program into a sandbox and compile it there, untimed; return how it is called.

    Raises:
        Missed: the image has no compiler.
    """
    await session.provider.write(sandbox, name, program(name))
    await need(session, sandbox, "gcc")
    out = name.removesuffix(".c")
    await session.run(sandbox, ["gcc", "-O2", "-pthread", "-o", out, name])
    return f"./{out}"


async def need(session: Session, sandbox: str, tool: str) -> None:
    """Check that the image has a program.

    Raises:
        Missed: it has not.
    """
    output = await session.provider.exec(sandbox, ["sh", "-c", f"command -v {tool}"], timeout_s=30)
    if output.exit_code != 0:
        raise Missed(f"the image has no {tool}")


async def need_space(session: Session, sandbox: str, mebibytes: int) -> None:
    """Check that the working directory has room.

    Raises:
        Missed: it has less.
    """
    output = await session.run(sandbox, ["df", "-Pm", "."])
    free = output.stdout.split(b"\n")[1].split()[3]
    if int(free) < mebibytes:
        raise Missed(f"{int(free)} MiB free, and {mebibytes} are needed")
