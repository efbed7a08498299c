"""Builds the default image with mmdebstrap: Debian as this host has it, from this host's own mirror.

The same packages give the same bytes: times are clamped to the date of the release, and nothing of the host goes in but
the addresses, keys and validity options of its Debian mirror.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from sandyard.errors import HostError, ImageError
from sandyard.images.commands import Scene, run
from sandyard.images.failures import failure
from sandyard.images.image import ImageConfig
from sandyard.images.progress import Progress

CONFIG = ImageConfig(
    env={
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        # The whole machine is the user's own: pip may install into it, and as root.
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    },
    workdir="/root",
    cmd=("bash",),
)

PACKAGES = (
    "build-essential",
    "ca-certificates",
    "curl",
    "file",
    "git",
    "jq",
    "less",
    "openssh-client",
    "patch",
    "procps",
    "python-is-python3",
    "python3",
    "python3-pip",
    "python3-venv",
    "ripgrep",
    "rsync",
    "unzip",
    "wget",
    "xz-utils",
    "zip",
    "zstd",
)

_WHAT = "the default image could not be built"
_NO_APT = (
    "It is made of a Debian host's own packages; elsewhere use an image of a registry or an archive: --image NAME."
)
_LIVE_ON = re.compile(r"Acquire::(Check-|Max-|Min-)")
"""Options of apt that concern the mirror, not this host: without them apt fails inside too where it needs them here."""
_NOT_OURS = re.compile(r"Acquire::(IndexTargets|cdrom|Changelogs|Languages|Retries)")

_SLIM = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/man/*",
)

_STEPS = tuple(
    f"I: {step}" for step in ("starting", "running apt", "downloading", "extracting", "installing", "creating")
)
"""Beginnings of what mmdebstrap says that a person wants to know."""

_CLEAN = """
set -eu
rm "$1/etc/apt/apt.conf.d/99mmdebstrap"
for file in hostname machine-id resolv.conf; do rm -f "$1/etc/$file"; : > "$1/etc/$file"; done
printf '127.0.0.1 localhost\\n::1 localhost ip6-localhost ip6-loopback\\n' > "$1/etc/hosts"
"""
"""Takes out what mmdebstrap copied from the host; the files stay, for the sandbox to write its own into."""


@dataclass(frozen=True, slots=True)
class Release:
    """The Debian that this host runs, and where it gets it."""

    codename: str
    sources: tuple[tuple[str, str], ...]
    """Apt's entries for it: ``list`` or ``sources`` (the form), and the text."""

    date: datetime
    """Of the release itself: it changes with each point release, not with each update."""


async def build(scene: Scene, progress: Progress) -> Path:
    """Build the image's root file system as a tar in ``scene.folder``.

    Raises:
        HostError: this is no Debian, or it lacks mmdebstrap.
        NoSpaceError, RegistryUnreachableError, ImageError: apt or dpkg failed, and why.
    """
    release = await host_release()
    options = await _apt_options()
    (scene.folder / "build.conf").write_text("\n".join(options) + "\n")
    kept = [option for option in options if _LIVE_ON.match(option)]
    (scene.folder / "image.conf").write_text("\n".join([*kept, 'Acquire::Languages "none";']) + "\n")
    for form in ("list", "sources"):
        entries = [text for found, text in release.sources if found == form]
        if entries:
            (scene.folder / f"debian.{form}").write_text("\n\n".join(entries) + "\n")

    def tell(line: str) -> None:
        if line.startswith(_STEPS):
            progress(f"building the default image: {line.removeprefix('I: ').rstrip('.')}", None, None)

    # In namespaces of its own, so that no mount and no process of the build outlives it.
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "mmdebstrap", "--mode=root"]
    argv += ["--variant=minbase", f"--include={','.join(PACKAGES)}", "--aptopt=build.conf"]
    argv += [f"--dpkgopt={option}" for option in _SLIM]
    argv += [f"--customize-hook={_CLEAN}", "--customize-hook=upload image.conf /etc/apt/apt.conf.d/99sandyard"]
    argv += [release.codename, "rootfs.tar", *(path.name for path in sorted(scene.folder.glob("debian.*")))]
    tell("I: starting")
    env = {"SOURCE_DATE_EPOCH": str(int(release.date.timestamp()))}
    completed = await run(argv, scene=scene, env=env, on_line=tell)
    if completed.returncode != 0:
        raise failure(_WHAT, replace(completed, program="mmdebstrap"))
    return scene.folder / "rootfs.tar"


async def host_release() -> Release:
    """Say which Debian this host runs, and which entries of apt's sources are its own.

    Raises:
        HostError: this is no Debian.
        ImageError: apt has not read its sources yet.
    """
    codename = _codename()
    # Apt's own lists say which entries are Debian's: other archives use the same suite names.
    fields = "$(SOURCESENTRY)|$(ORIGIN)|$(CODENAME)|$(FILENAME)"
    listed = await run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages", "Component: main"])
    rows = [line.split("|") for line in listed.stdout.decode().splitlines()]
    wanted = {codename, f"{codename}-updates", f"{codename}-security"}
    targets = [(entry, name, file) for entry, origin, name, file in rows if origin == "Debian" and name in wanted]
    dates = [date for _, name, file in targets if name == codename and (date := _release_date(file))]
    if not dates:
        raise ImageError(
            f"{_WHAT}: apt has no list of Debian {codename}'s packages yet.", hint="Run 'apt-get update' first."
        )
    entries = dict.fromkeys(entry for entry, _, _ in targets)
    return Release(codename, tuple(source_entry(entry) for entry in entries), dates[0])


def source_entry(entry: str) -> tuple[str, str]:
    """Return the form and text of one entry of apt's sources.

    Args:
        entry: ``FILE:N``, as apt names it: the Nth line of a list, or the Nth stanza of a deb822 file, from 1.
    """
    file, _, number = entry.rpartition(":")
    if not file.endswith(".sources"):
        return "list", Path(file).read_text().splitlines()[int(number) - 1]
    lines = [line for line in Path(file).read_text().splitlines() if not line.startswith("#")]
    stanzas = [stanza for stanza in re.split(r"\n(?:[ \t]*\n)+", "\n".join(lines).strip("\n")) if stanza.strip()]
    return "sources", re.sub(r"(?im)^types:.*$", "Types: deb", stanzas[int(number) - 1])


def _codename() -> str:
    try:
        text = Path("/etc/os-release").read_text()
    except FileNotFoundError:
        text = ""
    found = re.search(r'^VERSION_CODENAME="?([a-z]+)"?$', text, re.MULTILINE)
    if found is None or not re.search(r'^ID="?debian"?$', text, re.MULTILINE):
        raise HostError(f"{_WHAT}: this host is no Debian release.", hint=_NO_APT)
    return found.group(1)


def _release_date(packages: str) -> datetime | None:
    """Return the date in the signed file that lists a ``..._main_binary-ARCH_Packages`` file."""
    base = packages[: packages.index("_main_binary-")]
    for path in (Path(f"{base}_InRelease"), Path(f"{base}_Release")):
        if path.exists():
            found = re.search(r"^Date: (.+)$", path.read_text(), re.MULTILINE)
            return parsedate_to_datetime(found.group(1)) if found else None
    return None


async def _apt_options() -> list[str]:
    """Return this host's options for reaching mirrors, proxies and certificates included, one statement each."""
    dumped = await run(["apt-config", "dump", "--no-empty", "--format", '%F "%v";%n', "Acquire"])
    if dumped.returncode != 0:
        raise failure(_WHAT, dumped)
    return [line for line in dumped.stdout.decode().splitlines() if line and not _NOT_OURS.match(line)]
