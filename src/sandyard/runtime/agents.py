"""The agent's binary: found in the package, kept by digest as long as a checkpoint may need that very one."""

from __future__ import annotations

import hashlib
import os
import shutil
from importlib import resources

from sandyard.errors import HostError
from sandyard.runtime.layout import Layout


def install_agent(layout: Layout) -> str:
    """Put this version's agent under the state directory and return its SHA-256 in hex.

    Raises:
        HostError: the package was built without it.
        NoSpaceError: the disk is full.
    """
    packaged = resources.files("sandyard") / "_agent" / "sandyard-agent"
    try:
        binary = packaged.read_bytes()
    except FileNotFoundError:
        raise HostError(
            "the guest agent is not in this installation: the package was built without it.",
            hint="Install again with 'pip install .', which builds it, or run scripts/setup in a checkout.",
        ) from None
    digest = hashlib.sha256(binary).hexdigest()
    target = layout.agent(digest)
    if not target.exists():
        part = layout.agents / f"{digest}.{os.getpid()}.part"
        shutil.rmtree(part, ignore_errors=True)  # of an earlier process with this pid that was killed
        with layout.full_disk_told():
            part.mkdir()
            (part / target.name).write_bytes(binary)
            (part / target.name).chmod(0o755)
        try:
            part.rename(target.parent)
        except OSError:  # another process was faster with the same bytes
            shutil.rmtree(part)
    return digest
