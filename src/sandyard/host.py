"""What this host must have for sandboxes to run, looked at one thing at a time; it changes nothing.

Every check says what it found, why that matters and how to get what is missing, on Debian and elsewhere.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandyard.units import GIB, MIB, format_bytes

OLDEST_RUNSC = 20240101
"""Release date, as yyyymmdd. Before 2024 systrap, the platform that needs no hardware virtualisation, was not ready."""

_LAST_RUNSC_WITH_ROOT_NAMESPACE_BUG = 20240730
"""Release date. gVisor issue 10704 was reported on this day."""

_OLDEST_KERNEL = (4, 14)
"""gVisor's installation guide."""

_ARCHITECTURES = {"x86_64", "aarch64"}
_CONTROLLERS = ("cpu", "memory", "pids")
_ANSWER_S = 20.0


class Status(StrEnum):
    """What a check comes to."""

    OK = "ok"
    WARN = "warn"
    """Something will not work, or not well; sandboxes run."""
    FAIL = "fail"
    """No sandbox will run."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    """What is so on this host."""

    why: str
    """What it is needed for."""

    how: str = ""
    """How to get it; empty where nothing is missing."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the kernel says what it can; tests give others."""

    mountinfo: Path = Path("/proc/self/mountinfo")
    meminfo: Path = Path("/proc/meminfo")
    namespaces: Path = Path("/proc/self/ns")


def checks(state_dir: Path, paths: Paths | None = None) -> list[Check]:
    """Look at everything that sandboxes need.

    Args:
        state_dir: where images and sandboxes are kept; it need not exist yet.
        paths: where to look.
    """
    where = paths or Paths()
    version = runsc_version()
    return [
        kernel(platform.system(), platform.release(), platform.machine()),
        root(os.geteuid()),
        cgroups(where.mountinfo),
        namespaces(where.namespaces),
        runsc(version),
        network(version),
        *(tool(name) for name in _TOOLS),
        basics(),
        disk(state_dir),
        memory(where.meminfo),
    ]


# -- the kernel -------------------------------------------------------------------------------------------------------


def kernel(system: str, release: str, machine: str) -> Check:
    """Check what ``uname`` says."""
    why = "gVisor runs on Linux 4.14.77 or later, on x86-64 and 64-bit ARM."
    found = f"{system} {release} on {machine}"
    numbers = re.match(r"(\d+)\.(\d+)", release)
    is_new = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _OLDEST_KERNEL
    if system == "Linux" and is_new and machine in _ARCHITECTURES:
        return Check("kernel", Status.OK, found, why)
    return Check("kernel", Status.FAIL, found, why, "Use a host with such a kernel and processor.")


def root(uid: int) -> Check:
    """Check who is running."""
    why = "Namespaces, control groups and the owners of an image's files need root."
    if uid == 0:
        return Check("root", Status.OK, "running as root", why)
    return Check("root", Status.FAIL, f"running as user {uid}", why, "Run it as root, or with sudo.")


def cgroups(mountinfo: Path) -> Check:
    """Check that the controllers for limits, accounting and pausing can be used."""
    why = "They limit and count what each sandbox uses, and pause it."
    how = "Mount them writable; a container needs the host's (--cgroupns=host, and /sys/fs/cgroup read-write)."
    v1, v2 = _cgroup_mounts(mountinfo.read_text())
    version = "hybrid (v1 and v2)" if v1 and v2 else "v1" if v1 else "v2" if v2 else "none"
    offered = set((v2 / "cgroup.controllers").read_text().split()) if v2 else set[str]()
    if set(_CONTROLLERS) & v1.keys():  # on a hybrid host they are where v1 is
        needed = (*_CONTROLLERS, "cpuacct", "freezer")
        missing = [name for name in needed if name not in v1]
        locked = [name for name in needed if name in v1 and not os.access(v1[name], os.W_OK)]
    else:
        missing = [name for name in _CONTROLLERS if name not in offered]  # freezing is part of v2 itself
        locked = [str(v2)] if v2 and not os.access(v2, os.W_OK) else []
    if missing:
        return Check("cgroups", Status.FAIL, f"{version}, without {', '.join(missing)}", why, how)
    if locked:
        return Check("cgroups", Status.FAIL, f"{version}, but not writable: {', '.join(locked)}", why, how)
    return Check("cgroups", Status.OK, f"{version}, with {', '.join(_CONTROLLERS)} and freezer, writable", why)


def _cgroup_mounts(mountinfo: str) -> tuple[dict[str, Path], Path | None]:
    """Return where each controller of v1 is mounted, and where v2 is."""
    v1: dict[str, Path] = {}
    v2 = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = [*right.split(" "), "", ""][:3]
        mount = Path(left.split(" ")[4])
        if kind == "cgroup2":
            v2 = v2 or mount
        elif kind == "cgroup":
            for option in options.split(","):
                v1.setdefault(option, mount)
    return v1, v2


def namespaces(folder: Path) -> Check:
    """Check that namespaces exist and may be made."""
    why = "Each sandbox has its own, beside gVisor's own isolation."
    missing = [name for name in ("mnt", "pid", "net", "ipc", "uts") if not (folder / name).exists()]
    if missing:
        how = "Use a kernel that is built with them."
        return Check("namespaces", Status.FAIL, f"the kernel has none of: {', '.join(missing)}", why, how)
    tried = _run("unshare", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "true")
    if tried is None or tried.returncode != 0:
        said = "there is no 'unshare' to try it with" if tried is None else _first_line(tried.stderr)
        how = "Be root; a container around this must be allowed to make them (--privileged)."
        return Check("namespaces", Status.FAIL, f"none may be made: {said}", why, how)
    return Check("namespaces", Status.OK, "mount, pid, net, ipc and uts may be made", why)


# -- programs ---------------------------------------------------------------------------------------------------------


def runsc_version() -> str | None:
    """Return what runsc calls its version, None where there is no runsc."""
    answer = _run("runsc", "--version")
    if answer is None:
        return None
    found = re.search(r"runsc version (\S+)", answer.stdout)
    return found[1] if found else _first_line(answer.stdout + answer.stderr)


def runsc_date(version: str) -> int | None:
    """Return the date in a version of runsc as yyyymmdd: ``release-20240729.0``, ``0.0~20240729.0``, ``20240729.0``."""
    found = re.search(r"(?:^|release-|~)(20\d{6})(?!\d)", version)
    return int(found[1]) if found else None


def runsc(version: str | None) -> Check:
    """Check that gVisor is there and not too old."""
    why = "It is the isolation: gVisor, of 2024 or later, whose systrap platform needs no hardware virtualisation."
    how = _how("runsc", "Debian 12 has it in backports: scripts/packages.sh installs it", "gVisor (google/gvisor)")
    if version is None:
        return Check("runsc", Status.FAIL, "not installed", why, how)
    date = runsc_date(version)
    if date is None:
        return Check("runsc", Status.WARN, f"{version}, whose age cannot be told", why, how)
    if date < OLDEST_RUNSC:
        return Check("runsc", Status.FAIL, f"{version}, too old", why, how)
    return Check("runsc", Status.OK, version, why)


def network(version: str | None) -> Check:
    """Check for the one known mismatch between releases of runsc and of the kernel."""
    why = (
        "A runsc of July 2024 or before takes a namespace in which /proc/sys/net/core/rmem_default exists for the root "
        "one, and refuses to give its sandbox a network; Linux 6.11 and later show that file in every namespace."
    )
    how = "Install a later runsc from the gVisor project; sandboxes without a network are not concerned."
    date = runsc_date(version or "")
    if date is None or date > _LAST_RUNSC_WITH_ROOT_NAMESPACE_BUG:
        return Check("runsc network", Status.OK, "this runsc does not have the defect", why)
    looked = _run("unshare", "--net", "test", "-e", "/proc/sys/net/core/rmem_default")
    if looked is None or looked.stderr:
        return Check("runsc network", Status.WARN, "this runsc has the defect; the kernel could not be asked", why, how)
    if looked.returncode == 0:
        found = "this runsc and this kernel together: a network needs the workaround"
        return Check("runsc network", Status.WARN, found, why, how)
    return Check("runsc network", Status.OK, "this runsc has the defect, but this kernel does not show the file", why)


@dataclass(frozen=True, slots=True)
class _Tool:
    """A program, and what to do where it is not."""

    program: str
    package: str
    project: str
    why: str
    without: Status


_TOOLS = (
    _Tool("skopeo", "skopeo", "containers/skopeo", "It copies images from registries and archives.", Status.FAIL),
    _Tool("umoci", "umoci", "opencontainers/umoci", "It unpacks images.", Status.FAIL),
    _Tool("mmdebstrap", "mmdebstrap", "mmdebstrap, on Debian's Salsa", "It builds the default image.", Status.WARN),
    _Tool(
        "nft", "nftables", "netfilter's nftables", "It keeps sandboxes to the network they are allowed.", Status.WARN
    ),
)


def tool(wanted: _Tool) -> Check:
    """Check that a program answers when asked for its version."""
    answer = _run(wanted.program, "--version")
    if answer is None:
        how = _how(wanted.package, "scripts/packages.sh installs it", wanted.project)
        return Check(wanted.program, wanted.without, "not installed", wanted.why, how)
    said = re.search(r"\d[\w.+~-]*", answer.stdout)
    return Check(wanted.program, Status.OK, said[0] if said else _first_line(answer.stdout), wanted.why)


def basics() -> Check:
    """Check for what nearly every system has."""
    why = "They unpack archives and see to it that no program outlives what started it."
    missing = [name for name in ("tar", "setpriv", "unshare", "sync") if shutil.which(name) is None]
    if missing:
        how = "Install GNU tar, util-linux and coreutils."
        return Check("basics", Status.FAIL, f"not installed: {', '.join(missing)}", why, how)
    return Check("basics", Status.OK, "tar, setpriv, unshare and sync are there", why)


def _how(package: str, debian: str, project: str) -> str:
    """Say how to get a program here: through apt, or by its project's name."""
    if shutil.which("apt-get"):
        return f"{debian}; by hand: apt-get install {package}."
    return f"Look for '{package}' in this system's packages, or get it from its project: {project}."


# -- room -------------------------------------------------------------------------------------------------------------


def disk(state_dir: Path) -> Check:
    """Check the space where images and sleeping sandboxes lie."""
    why = "An unpacked image takes about 0.5 GiB; a sleeping sandbox as much as it had of memory and disk."
    how = "Free some, or point --state-dir at a larger disk."
    existing = next(path for path in (state_dir.absolute(), *state_dir.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    status = _grade(free, fail=GIB, warn=10 * GIB)
    return Check("disk", status, f"{format_bytes(free)} free at {existing}", why, "" if status is Status.OK else how)


def memory(meminfo: Path) -> Check:
    """Check the memory that could be given to sandboxes."""
    why = "Each running sandbox holds about 25 MiB and what its programs use."
    how = "End something else, or use a larger host."
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    if found is None:
        return Check("memory", Status.WARN, "the kernel does not say", why, "Nothing to do, if there is enough.")
    free = int(found[1]) * 1024
    status = _grade(free, fail=256 * MIB, warn=GIB)
    return Check("memory", status, f"{format_bytes(free)} available", why, "" if status is Status.OK else how)


def _grade(amount: int, *, fail: int, warn: int) -> Status:
    return Status.FAIL if amount < fail else Status.WARN if amount < warn else Status.OK


def _run(*argv: str) -> subprocess.CompletedProcess[str] | None:
    """Run a program and return what it said; None where there is none."""
    search = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # nft is there, and not every user looks there
    program = shutil.which(argv[0], path=search)
    if program is None:
        return None
    try:
        return subprocess.run([program, *argv[1:]], capture_output=True, text=True, check=False, timeout=_ANSWER_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 1, "", f"{argv[0]} did not answer within {_ANSWER_S:g} s")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
