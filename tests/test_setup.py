"""scripts/packages.sh and what it calls, with a real apt that has its own sources and lists and only simulates."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"
NEEDED = ("bash", "awk", "cat", "dirname", "env", "flock", "grep", "head", "mkdir", "mktemp", "mv", "rm", "sed")
NEEDED_OF_APT = ("apt-cache", "apt-config", "apt-get", "dpkg", "mmdebstrap", "nft", "skopeo", "umoci")
BACKPORTED = "0.0~20240729.0-4~bpo12+2"


def codename() -> str:
    found = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
    if found is None or shutil.which("apt-get") is None:
        pytest.skip("this host is no Debian")
    return found.group(1)


@dataclass
class Apt:
    """A tree that apt takes for the system's own."""

    root: Path
    codename: str

    def run(self, *argv: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "APT_CONFIG": str(self.root / "apt.conf"), **variables}
        return subprocess.run([*map(str, argv)], env=env, capture_output=True, text=True, check=False)

    def archive(self, folder: str, suite: str, origin: str, *packages: tuple[str, str]) -> Path:
        """Make an archive of packages that have names and versions only."""
        base = self.root / folder
        binary = base / "dists" / suite / "main" / "binary-amd64"
        binary.mkdir(parents=True)
        text = "".join(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x\nFilename: x.deb\nSize: 1\n"
            f"SHA256: {'0' * 64}\nDescription: x\n\n"
            for name, version in packages
        )
        (binary / "Packages").write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        backports = "NotAutomatic: yes\nButAutomaticUpgrades: yes\n" if "backports" in suite else ""
        (base / "dists" / suite / "Release").write_text(
            f"Origin: {origin}\nLabel: {origin}\nSuite: {suite}\nCodename: {suite}\n"
            f"Architectures: amd64\nComponents: main\nDate: Sat, 01 Jan 2022 00:00:00 UTC\n{backports}"
            f"SHA256:\n {digest} {len(text)} main/binary-amd64/Packages\n"
        )
        return base

    def source(self, name: str, text: str) -> None:
        (self.root / "etc/sources.list.d" / name).write_text(text)


@pytest.fixture
def apt(tmp_path: Path) -> Apt:
    """A Debian whose own runsc is of 2022 and whose backports have that of 2024, and somebody else's archive."""
    name = codename()
    made = Apt(tmp_path, name)
    for folder in ("etc/sources.list.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial", "log"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "apt.conf").write_text(
        f'Dir "{tmp_path}";\nDir::Etc "{tmp_path}/etc";\n'
        f'Dir::State "{tmp_path}/state";\nDir::Cache "{tmp_path}/cache";\n'
        f'Dir::State::status "{tmp_path}/status";\nDir::Log "{tmp_path}/log";\nDir::Etc::parts "/dev/null";\n'
        'APT::Sandbox::User "root";\nAPT::Architecture "amd64";\nAPT::Architectures { "amd64"; };\n'
        'APT::Get::Simulate "true";\n'
    )
    made.archive("debian", name, "Debian", ("runsc", "0.0~20221219.0-2+b3"))
    made.archive("debian", f"{name}-backports", "Debian Backports", ("runsc", BACKPORTED))
    made.archive("other", name, "Somebody", ("other", "1"))
    return made


STANZAS = """# Somebody's come first, with the same suite.

# comment
Types: deb
URIs: file://{root}/other
Suites: {codename}
Components: main
Trusted: yes

Enabled: no
Types: deb
URIs: file://{root}/nowhere
Suites: {codename}
Components: main

# Debian itself
Types: deb deb-src
URIs: file://{root}/debian
# not a field
Suites: {codename}
 {codename}-extra
Components: main
Architectures: amd64
Trusted: yes
"""

EXPECTED_STANZA = """Types: deb
URIs: file://{root}/debian
Suites: {codename}-backports
Components: main
Architectures: amd64
Trusted: yes
"""

LINES = """deb [trusted=yes] file://{root}/other {codename} main

# deb file://{root}/nowhere {codename} main
deb  [ arch=amd64  trusted=yes ]  file://{root}/debian   {codename}  main  # the mirror
"""

EXPECTED_LINE = "deb  [ arch=amd64  trusted=yes ]  file://{root}/debian   {codename}-backports  main  # the mirror\n"


def fill(text: str, apt: Apt) -> str:
    return text.format(root=apt.root, codename=apt.codename)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [("debian.sources", STANZAS, EXPECTED_STANZA), ("debian.list", LINES, EXPECTED_LINE)],
    ids=["deb822", "one-line"],
)
def test_backports_come_from_where_debian_itself_comes_from(apt: Apt, name: str, text: str, expected: str) -> None:
    if name.endswith(".sources"):
        apt.archive("debian", f"{apt.codename}-extra", "Debian")
    apt.source(name, fill(text, apt).replace("Types: deb deb-src", "Types: deb"))
    assert apt.run("apt-get", "update").returncode == 0
    assert BACKPORTED not in apt.run("apt-cache", "madison", "runsc").stdout
    made = apt.run(SCRIPTS / "backports-source")
    target = apt.root / "etc/sources.list.d" / f"sandyard-backports.{name.partition('.')[2]}"
    assert made.stdout.strip() == str(target), made.stderr
    assert target.read_text() == fill(expected, apt)
    assert apt.run("apt-get", "update").returncode == 0
    assert BACKPORTED in apt.run("apt-cache", "madison", "runsc").stdout


def test_where_no_source_is_debians_it_says_so(apt: Apt) -> None:
    apt.source("other.list", fill("deb [trusted=yes] file://{root}/other {codename} main\n", apt))
    assert apt.run("apt-get", "update").returncode == 0
    made = apt.run(SCRIPTS / "backports-source")
    assert made.returncode == 1
    assert "none of apt's sources is Debian" in made.stderr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder for PATH with all that is needed but runsc."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in (*NEEDED, *NEEDED_OF_APT):
        found = shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if found is None:
            pytest.skip(f"{tool} is not installed")
        (folder / tool).symlink_to(found)
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 "$@"\n')
    (folder / "python3").chmod(0o755)
    return folder


def install_runsc(folder: Path, version: str) -> None:
    (folder / "runsc").write_text(f"#!/bin/sh\necho runsc version {version}\necho spec: 1.0.2\n")
    (folder / "runsc").chmod(0o755)


@pytest.mark.parametrize("version", ["0.0~20240729.0", "release-20260105.0", "20250101.0"])
def test_nothing_is_done_where_all_is_there(apt: Apt, path: Path, version: str) -> None:
    install_runsc(path, version)
    done = apt.run(SCRIPTS / "packages.sh", PATH=str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_an_old_runsc_is_replaced_from_backports_or_refused(apt: Apt, path: Path) -> None:
    install_runsc(path, "0.0~20221219.0")
    apt.source("debian.list", fill("deb [trusted=yes] file://{root}/debian {codename} main\n", apt))
    done = apt.run(SCRIPTS / "packages.sh", PATH=str(path))
    assert "installing with apt: runsc" in done.stderr
    assert f"adding Debian's backports: {apt.root}/etc/sources.list.d/sandyard-backports.list" in done.stderr
    # Apt only simulated, so the old one is still first on PATH.
    assert done.returncode == 1
    assert "still not of 2024 or later" in done.stderr
    assert "runsc version 0.0~20221219.0" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_where_apt_has_only_an_old_runsc_the_reason_is_given(apt: Apt, path: Path) -> None:
    apt.archive("old", apt.codename, "Debian", ("runsc", "0.0~20221219.0-2+b3"))
    apt.archive("old", f"{apt.codename}-backports", "Debian Backports", ("runsc", "0.0~20230101.0-1"))
    apt.source("old.list", fill("deb [trusted=yes] file://{root}/old {codename} main\n", apt))
    done = apt.run(SCRIPTS / "packages.sh", PATH=str(path))
    assert done.returncode == 1
    assert "no source of apt has runsc of 2024 or later" in done.stderr
    assert "systrap" in done.stderr


def test_without_apt_it_says_what_is_missing(path: Path) -> None:
    (path / "apt-get").unlink()
    (path / "umoci").unlink()
    done = subprocess.run(
        [SCRIPTS / "packages.sh"], env={"PATH": str(path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "no apt; still missing: umoci runsc" in done.stderr
    assert "sandyard doctor" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_without_root_it_says_which_command_to_run(path: Path, tmp_path: Path) -> None:
    scripts = tmp_path / "checkout/scripts"
    scripts.mkdir(parents=True)
    shutil.copy(SCRIPTS / "packages.sh", scripts)
    for folder in (path, scripts, scripts.parent, tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    argv = [shutil.which("setpriv") or "setpriv", "--reuid", "65534", "--clear-groups", str(scripts / "packages.sh")]
    done = subprocess.run(argv, env={"PATH": str(path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"sudo {scripts}/packages.sh" in done.stderr


def test_a_lock_that_lacks_what_the_project_asks_for_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "check_lock.py", tmp_path / "scripts")
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(SCRIPTS.parent / name, tmp_path)

    def check() -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(tmp_path / "scripts/check_lock.py")]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert check().returncode == 0
    project = tmp_path / "pyproject.toml"
    good = project.read_text()
    for changed in ("never-locked>=1", "pydantic>=999"):
        project.write_text(good.replace('dependencies = ["pydantic', f'dependencies = ["{changed}", "pydantic', 1))
        assert check().returncode == 1
        assert changed in check().stderr
