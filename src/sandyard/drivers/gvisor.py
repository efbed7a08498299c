"""Sandboxes isolated by gVisor: one ``runsc`` sandbox per machine, its root overlay kept inside the sandbox kernel.

Flags and their reasons are in docs/decisions/0002-gvisor-flags.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandyard import host
from sandyard.drivers import fifo
from sandyard.drivers.cgroups import Cgroup, Limits, open_cgroup
from sandyard.drivers.driver import After, ExitReason, MachineExit, MachineSpec, MachineUsage
from sandyard.drivers.oci import oci_config
from sandyard.durable import sync
from sandyard.errors import HostError, NoSpaceError, SnapshotError, StartError

_JOIN = 'n=$1; shift; while [ $n -gt 0 ]; do echo $$ >"$1" || exit 97; shift; n=$((n-1)); done; exec "$@"'
"""Enters the control groups named first and then becomes the rest, so that nothing of it ever ran outside of them."""

_WITH_MEMINFO = 'mount --bind "$1" /proc/meminfo && shift && exec "$@"'
"""runsc tells the sandbox how much memory there is by the host's /proc/meminfo; here it finds the machine's limit."""

_NO_ROOM_BYTES = 64 * 1024
"""Free space below which a checkpoint that failed is taken to have failed for want of space."""

CONTROL_ROOT = Path("/run/sandyard")
"""Where runsc keeps its control sockets: a unix socket's path has 107 bytes, too few for just any state directory."""


class Gvisor:
    """The driver; one object serves any number of machines."""

    name = "gvisor"

    def __init__(self, *, control_root: Path = CONTROL_ROOT) -> None:
        """Use the ``runsc`` found on PATH, and keep its control sockets under ``control_root``."""
        self._control_root = control_root
        self._version: str | None = None

    async def version(self) -> str:
        """Return what runsc calls its version, such as ``0.0~20240729.0``.

        Raises:
            HostError: there is none, or it is too old.
        """
        if self._version is None:
            version = await asyncio.to_thread(host.runsc_version)
            check = host.runsc(version)
            if version is None or check.status is host.Status.FAIL:
                raise HostError(f"runsc is {check.found}. {check.why}", hint=f"{check.how} Or run 'sandyard doctor'.")
            self._version = version
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
        for name in ("config.json", "meminfo", "pid", "runsc.log", "panic.log"):
            (spec.directory / name).unlink(missing_ok=True)
        for directory in (spec.directory / "disk", self._control(spec)):
            shutil.rmtree(directory, ignore_errors=True)

    async def _start(self, spec: MachineSpec, verb: Sequence[str]) -> GvisorMachine:
        if spec.network.mode != "none":
            raise StartError(
                f"the gvisor driver knows no network mode '{spec.network.mode}'.", hint="Use the mode 'none'."
            )
        if self._control(spec).exists():  # of a machine that ended and whose process of ours died before it had swept
            await self.sweep(spec)
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
        self._control(spec).mkdir(mode=0o700, parents=True, exist_ok=True)
        fifo.make_fifos(spec.directory)
        (spec.directory / "config.json").write_text(oci_config(spec))
        (spec.directory / "meminfo").write_text(f"MemTotal: {spec.memory_mib * 1024} kB\n")

    async def _launch(self, spec: MachineSpec, cgroup: Cgroup, verb: Sequence[str]) -> None:
        """Run runsc until the sandbox runs by itself, all of it inside the cgroup."""
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
        to_agent = fifo.open_fifo(spec.directory / fifo.TO_AGENT)
        from_agent = fifo.open_fifo(spec.directory / fifo.FROM_AGENT)
        panic = os.open(spec.directory / "panic.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", _JOIN, "sh", str(len(joins)), *joins,
                "unshare", "--mount", "--propagation", "slave",
                "/bin/sh", "-c", _WITH_MEMINFO, "sh", str(spec.directory / "meminfo"), *runsc,
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
            "runsc",
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
        interrupts = self._must_interrupt
        if interrupts:
            await self.resume()
            await self._runsc("kill", self.spec.id, "USR1")
            self._must_interrupt = False
        self._channel = fifo.FifoChannel(self.spec.directory, is_interrupted=interrupts)
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
        """Save with ``-leave-running``, and kill only once everything is on disk; its memory takes a while to free.

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
            self._cgroup.send_kill()

    async def _save(self, to: Path) -> None:
        result = await self._runsc(
            "checkpoint", "-image-path", str(to), "-leave-running", "-compression", "none", *_direct(to), self.spec.id
        )
        if result.code != 0:
            said = " ".join(result.stderr.split())
            if _is_no_space(said) or _is_full(to):
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

    def oom_kills(self) -> int:
        """Read the cgroup's counter."""
        return self._cgroup.oom_kills()

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
        elif self._cgroup.refused_tasks():  # the sandbox kernel gives up when the host refuses it a task
            end = MachineExit(ExitReason.FAULT, f"it reached its limit of {self.spec.pids} host tasks")
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
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await asyncio.shield(process.communicate())
    return _Result(await process.wait(), stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def _recorded_pid(control: Path) -> int | None:
    """Return the sandbox's pid from runsc's state file, None where there is none that can be read."""
    for path in control.glob("*.state"):
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
            return int(json.loads(path.read_text())["sandbox"]["pid"])
    return None


def _open_filestore(pid: int, disk: Path) -> int | None:
    """Open the file behind the sandbox's root overlay; runsc has unlinked it, so only the process itself shows it."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
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
        sync(path)
    part.rename(to)
    sync(to.parent)


def _last_words(directory: Path) -> str:
    """Return the end of what runsc and the sandbox kernel said, on one line."""
    said = []
    for name in ("panic.log", "runsc.log"):
        with contextlib.suppress(OSError):
            said.append((directory / name).read_text(errors="replace")[-600:])
    return " ".join(" ".join(said).split()) or "it said nothing"


def _is_full(directory: Path) -> bool:
    """Whether nothing more can be written there: what runsc cannot write may also make it panic, and say only that."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize < _NO_ROOM_BYTES


def _is_no_space(text: str) -> bool:
    return "no space left on device" in text
