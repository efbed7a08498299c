"""Sandboxes isolated by gVisor: one ``runsc`` sandbox per machine, its root overlay kept inside the sandbox kernel.

Flags and their reasons are in docs/decisions/0002-gvisor-flags.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandyard.drivers import fifo
from sandyard.drivers.cgroups import Cgroup, Limits, open_cgroup
from sandyard.drivers.driver import After, ExitReason, MachineExit, MachineSpec, MachineUsage
from sandyard.errors import HostError, NoSpaceError, SnapshotError, StartError

AGENT_PATH = "/usr/bin/sandyard-guest"
"""Where the agent's binary appears inside; on everybody's PATH, since it is also the command of that name."""

_SHM = "/dev/shm"  # noqa: S108 - inside the sandbox

CONTROL_ROOT = Path("/run/sandyard")
"""Where runsc keeps its control sockets: a unix socket's path has 107 bytes, too few for just any state directory."""

# fmt: off
_CAPABILITIES = [
    "CAP_AUDIT_CONTROL", "CAP_AUDIT_READ", "CAP_AUDIT_WRITE", "CAP_BLOCK_SUSPEND", "CAP_CHOWN", "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_KILL", "CAP_LEASE",
    "CAP_LINUX_IMMUTABLE", "CAP_MAC_ADMIN", "CAP_MAC_OVERRIDE", "CAP_MKNOD", "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
    "CAP_SETUID", "CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_CHROOT", "CAP_SYS_MODULE", "CAP_SYS_NICE",
    "CAP_SYS_PACCT", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG",
    "CAP_WAKE_ALARM",
]
# fmt: on
"""All of them: they are the sandbox kernel's own, which has nothing of the host's to give away."""


class Gvisor:
    """The driver; one object serves any number of machines."""

    name = "gvisor"

    def __init__(self, *, runsc: str = "runsc", control_root: Path = CONTROL_ROOT) -> None:
        """Use the ``runsc`` found on PATH, and keep its control sockets under ``control_root``."""
        self._runsc = runsc
        self._control_root = control_root
        self._version: str | None = None

    async def version(self) -> str:
        """Return what ``runsc --version`` says, such as ``0.0~20240729.0``."""
        if self._version is None:
            result = await _call([self._runsc, "--version"])
            match = re.search(r"runsc version (\S+)", result.stdout)
            if match is None:
                raise HostError(
                    f"'{self._runsc} --version' did not answer with a version: {result.stderr or result.stdout}.",
                    hint="Run 'sandyard doctor'.",
                )
            self._version = match[1]
        return self._version

    async def boot(self, spec: MachineSpec) -> GvisorMachine:
        """Start from the root file system."""
        return await self._start(spec, ["run", "-detach"])

    async def restore(self, spec: MachineSpec, checkpoint: Path) -> GvisorMachine:
        """Start from a checkpoint."""
        return await self._start(spec, ["restore", "-detach", *_direct(checkpoint), "-image-path", str(checkpoint)])

    async def adopt(self, spec: MachineSpec) -> GvisorMachine | None:
        """Find the sandbox process by runsc's own record, and make sure that it still is that process."""
        cgroup = open_cgroup(spec.id)
        pid = _recorded_pid(self._control(spec))
        if pid is None or pid not in cgroup.pids():
            return None
        return GvisorMachine(spec, self, cgroup, pid, adopted=True)

    async def sweep(self, spec: MachineSpec) -> None:
        """Remove what a machine of this id has on the host, whoever made it."""
        await open_cgroup(spec.id).remove()
        fifo.remove_fifos(spec.directory)
        for name in ("config.json", "pid", "runsc.log", "panic.log"):
            (spec.directory / name).unlink(missing_ok=True)
        for directory in (spec.directory / "disk", self._control(spec)):
            shutil.rmtree(directory, ignore_errors=True)

    async def _start(self, spec: MachineSpec, verb: Sequence[str]) -> GvisorMachine:
        if spec.network.mode != "none":
            raise StartError(
                f"the gvisor driver knows no network mode '{spec.network.mode}'.", hint="Use the mode 'none'."
            )
        cgroup = open_cgroup(spec.id)
        try:
            cgroup.create(Limits(spec.cpus, spec.memory_mib, spec.pids))
            self._lay_out(spec)
            await self._launch(spec, cgroup, verb)
            pid = int((spec.directory / "pid").read_text())
            return GvisorMachine(spec, self, cgroup, pid)
        except BaseException:
            oom = cgroup.oom_kills()
            await asyncio.shield(self.sweep(spec))
            if oom:
                raise StartError(
                    f"the sandbox was killed while it started: it needs more than {spec.memory_mib} MiB.",
                    hint="Give it more memory.",
                    code="memory-too-small",
                ) from None
            raise

    def _lay_out(self, spec: MachineSpec) -> None:
        (spec.directory / "disk").mkdir(exist_ok=True)
        self._control(spec).mkdir(parents=True, exist_ok=True)
        fifo.make_fifos(spec.directory)
        (spec.directory / "config.json").write_text(oci_config(spec))

    async def _launch(self, spec: MachineSpec, cgroup: Cgroup, verb: Sequence[str]) -> None:
        """Run runsc until the sandbox runs by itself; a shell enters the cgroup first, so all of it is inside."""
        runsc = [
            *self.command(spec),
            *verb,
            "-bundle",
            str(spec.directory),
            "-pid-file",
            str(spec.directory / "pid"),
            spec.id,
        ]
        joins = [str(path) for path in cgroup.join_files()]
        script = 'n=$1; shift; while [ $n -gt 0 ]; do echo $$ >"$1" || exit 97; shift; n=$((n-1)); done; exec "$@"'
        to_agent = fifo.open_fifo(spec.directory / fifo.TO_AGENT)
        from_agent = fifo.open_fifo(spec.directory / fifo.FROM_AGENT)
        panic = os.open(spec.directory / "panic.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", script, "sh", str(len(joins)), *joins, *runsc,
                stdin=to_agent, stdout=from_agent, stderr=panic, cwd="/", start_new_session=True,
            )  # fmt: skip
        finally:
            for fd in (to_agent, from_agent, panic):
                os.close(fd)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await asyncio.shield(cgroup.kill())
            await asyncio.shield(process.wait())
            raise
        if code != 0:
            said = _last_words(spec.directory)
            kind = NoSpaceError if _is_no_space(said) else StartError
            raise kind(f"runsc could not start the sandbox: {said}.", hint="Run 'sandyard doctor'; its log has more.")

    def command(self, spec: MachineSpec) -> list[str]:
        """Return the runsc command line up to its verb."""
        return [
            self._runsc,
            f"--root={self._control(spec)}",
            "--platform=systrap",
            f"--overlay2=root:dir={spec.directory / 'disk'}",
            "--file-access-mounts=exclusive",
            "--ignore-cgroups",
            "--network=none",
            f"--log={spec.directory / 'runsc.log'}",
        ]

    def _control(self, spec: MachineSpec) -> Path:
        return self._control_root / spec.id


class GvisorMachine:
    """One runsc sandbox."""

    def __init__(self, spec: MachineSpec, driver: Gvisor, cgroup: Cgroup, pid: int, *, adopted: bool = False) -> None:
        """Watch the sandbox process ``pid``; the loop learns of its end through a pidfd."""
        self.spec = spec
        self.pid = pid
        self._driver = driver
        self._cgroup = cgroup
        self._must_interrupt = adopted
        self._channel: fifo.FifoChannel | None = None
        self._asked: ExitReason | None = None
        self._ended: asyncio.Future[MachineExit] = asyncio.get_running_loop().create_future()
        self._filestore = _open_filestore(pid, spec.directory / "disk")
        self._watch()

    async def connect(self) -> fifo.FifoChannel:
        """Open the pipes; an agent whose host died is first told to forget the frame it is in."""
        if self._channel is not None:
            self._channel.close()
        if self._must_interrupt:
            await self.resume()
            await self._runsc("kill", self.spec.id, "USR1")
            self._must_interrupt = False
        self._channel = fifo.FifoChannel(self.spec.directory)
        if self._ended.done():
            self._channel.close()
        return self._channel

    async def pause(self) -> None:
        """Freeze the cgroup."""
        await self._cgroup.freeze()

    async def resume(self) -> None:
        """Thaw the cgroup."""
        await self._cgroup.thaw()

    async def checkpoint(self, to: Path, after: After) -> None:
        """Save with ``-leave-running``, and kill only once everything is on disk.

        A checkpoint without it ends the sandbox even where the disk was full (tried with runsc 20240729); what a
        process does between the saved instant and the kill is seen by nobody.
        """
        part = to.with_name(f"{to.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            await self._save(part)
            await asyncio.to_thread(_publish, part, to)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        if after is After.STOP:
            self._asked = ExitReason.STOPPED
            await self.kill()

    async def _save(self, to: Path) -> None:
        result = await self._runsc(
            "checkpoint", "-image-path", str(to), "-leave-running", "-compression", "none", *_direct(to), self.spec.id
        )
        if result.code != 0:
            said = " ".join(result.stderr.split())
            if _is_no_space(said):
                raise NoSpaceError(
                    f"the disk is full: the checkpoint of {self.spec.id} could not be written. The sandbox goes on.",
                    hint="Free space under the state directory: delete snapshots, or run 'sandyard images prune'.",
                )
            raise SnapshotError(
                f"runsc could not save {self.spec.id}: {said}. The sandbox goes on if it still runs.",
                hint="Try again; if it keeps failing, look at runsc.log in the sandbox's directory.",
            )

    def usage(self) -> MachineUsage:
        """Read the cgroup, and the blocks of the overlay's file store."""
        return MachineUsage(
            cpu_us=self._cgroup.cpu_us(),
            memory_bytes=self._cgroup.memory_bytes(),
            memory_peak_bytes=self._cgroup.memory_peak_bytes(),
            disk_bytes=0 if self._filestore is None else os.fstat(self._filestore).st_blocks * 512,
        )

    async def wait(self) -> MachineExit:
        """Wait for the sandbox process to end."""
        return await asyncio.shield(self._ended)

    async def kill(self) -> None:
        """Kill the whole cgroup: sandbox, gofer and every stub."""
        if self._asked is None:
            self._asked = ExitReason.KILLED
        await self._cgroup.kill()
        await self.wait()

    async def remove(self) -> None:
        """Kill, then sweep."""
        await self.kill()
        if self._channel is not None:
            self._channel.close()
        if self._filestore is not None:
            os.close(self._filestore)
            self._filestore = None
        await self._driver.sweep(self.spec)

    def _watch(self) -> None:
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._end()
            return
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            self._end()

        loop.add_reader(pidfd, ended)

    def _end(self) -> None:
        if self._cgroup.oom_kills() and self._asked is None:
            end = MachineExit(ExitReason.MEMORY, f"it reached its limit of {self.spec.memory_mib} MiB")
        elif self._asked is not None:
            end = MachineExit(self._asked)
        else:
            end = MachineExit(ExitReason.FAULT, _last_words(self.spec.directory))
        if not self._ended.done():
            self._ended.set_result(end)
        if self._channel is not None:
            self._channel.close()

    async def _runsc(self, *verb: str) -> _Result:
        return await _call([*self._driver.command(self.spec), *verb])


@dataclass(frozen=True, slots=True)
class _Result:
    code: int
    stdout: str
    stderr: str


async def _call(command: Sequence[str]) -> _Result:
    """Run a short command to its end, even when the caller is cancelled: half a checkpoint helps nobody."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except FileNotFoundError:
        raise HostError(
            f"'{command[0]}' is not installed, and no sandbox runs without it.",
            hint="Run scripts/setup, or 'sandyard doctor'.",
        ) from None
    stdout, stderr = await asyncio.shield(process.communicate())
    return _Result(await process.wait(), stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def oci_config(spec: MachineSpec) -> str:
    """Describe the machine to runsc. /tmp is the image's own, on disk, so that big temporary files take no memory."""
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [AGENT_PATH],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted", "inheritable"), _CAPABILITIES),
        },
        "root": {"path": str(spec.rootfs), "readonly": False},
        "hostname": spec.hostname,
        "mounts": [
            {"destination": "/proc", "type": "proc"},
            {"destination": "/sys", "type": "sysfs", "options": ["ro", "nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs"},
            {"destination": _SHM, "type": "tmpfs", "options": ["nosuid", "nodev"]},
            {
                "destination": AGENT_PATH,
                "type": "bind",
                "source": str(spec.agent),
                "options": ["ro", "nosuid", "nodev"],
            },
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
    return json.dumps(config)


def _recorded_pid(control: Path) -> int | None:
    """Return the sandbox's pid from runsc's state file, None where there is none that can be read."""
    for path in control.glob("*.state"):
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
            return int(json.loads(path.read_text())["sandbox"]["pid"])
    return None


def _open_filestore(pid: int, disk: Path) -> int | None:
    """Open the file behind the sandbox's root overlay; runsc has unlinked it, so only the process itself shows it."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            if str(Path(entry.path).readlink()).startswith(f"{disk}/"):
                return os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
    return None


def _direct(path: Path) -> list[str]:
    """Ask for O_DIRECT where the file system has it: what is written is then on disk without a second pass."""
    directory = path if path.is_dir() else path.parent
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return []
    return ["-direct"]


def _publish(part: Path, to: Path) -> None:
    """Give a finished checkpoint its name, contents first, so that a power cut leaves all of it or nothing."""
    for path in (*part.iterdir(), part):
        _sync(path)
    part.rename(to)
    _sync(to.parent)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _last_words(directory: Path) -> str:
    """Return the end of what runsc and the sandbox kernel said, on one line."""
    said = []
    for name in ("panic.log", "runsc.log"):
        with contextlib.suppress(OSError):
            said.append((directory / name).read_text(errors="replace")[-600:])
    return " ".join(" ".join(said).split()) or "it said nothing"


def _is_no_space(text: str) -> bool:
    return "no space left on device" in text
