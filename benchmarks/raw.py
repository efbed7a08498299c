"""The same sandboxes by the raw tool: ``runsc`` on its own, called as plainly as can be, with the flags that we use."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from sandyard.drivers import MachineSpec, fifo
from sandyard.drivers.gvisor import Gvisor
from sandyard.drivers.oci import oci_config
from sandyard.frames import Scanner, encode_hello

_ANSWER_S = 60


class RawSandbox:
    """One sandbox made with ``runsc`` alone; its PID 1 is our agent, so that answers compare."""

    def __init__(self, like: MachineSpec, directory: Path, name: str) -> None:
        """Lay out a bundle with the same root file system, agent and mounts as ``like``."""
        self.spec = replace(like, id=name, directory=directory)
        self._driver = Gvisor(control_root=directory / "c")
        (directory / "disk").mkdir(parents=True)
        (directory / "c" / name).mkdir(parents=True)
        fifo.make_fifos(directory)
        (directory / "config.json").write_text(oci_config(self.spec))
        self._to = fifo.open_fifo(directory / fifo.TO_AGENT)
        self._from = fifo.open_fifo(directory / fifo.FROM_AGENT)

    def run(self) -> None:
        """``runsc run``."""
        self._launch("run", "-detach")

    def restore(self, checkpoint: Path) -> None:
        """``runsc restore``."""
        self._launch("restore", "-detach", "-direct", "-image-path", str(checkpoint))

    def exec(self, *argv: str) -> None:
        """``runsc exec``."""
        self.verb("exec", then=argv)

    def pause_and_resume(self) -> None:
        """``runsc pause``, ``runsc resume``."""
        self.verb("pause")
        self.verb("resume")

    def pour_in(self, size: int) -> None:
        """Send that many bytes into a file, through ``runsc exec``."""
        with subprocess.Popen(["head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE) as source:
            self.verb("exec", then=["sh", "-c", "cat > /big"], stdin=source.stdout)

    def pour_out(self, size: int) -> None:
        """Get the file back the same way."""
        with subprocess.Popen(["wc", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sink:
            self.verb("exec", then=["cat", "/big"], stdout=sink.stdin)
            if sink.stdin is None or sink.stdout is None:
                raise RuntimeError("no pipe")
            sink.stdin.close()
            if int(sink.stdout.read()) != size:
                raise RuntimeError("some bytes were lost")

    def verb(
        self,
        *verb: str,
        then: Sequence[str] = (),
        stdin: IO[bytes] | int | None = subprocess.DEVNULL,
        stdout: IO[bytes] | int | None = subprocess.DEVNULL,
    ) -> None:
        """Call ``runsc`` for this sandbox."""
        command = [*self._driver.command(self.spec), *verb, self.spec.id, *then]
        subprocess.run(command, check=True, stdin=stdin, stdout=stdout)

    def answer(self) -> None:
        """Greet the agent and wait for its answer: one round trip."""
        os.write(self._to, encode_hello(b'{"version": 1, "session": "raw", "orphans": "keep"}'))
        scanner = Scanner()
        until = time.monotonic() + _ANSWER_S
        while select.select([self._from], [], [], until - time.monotonic())[0]:
            if scanner.feed(os.read(self._from, 65536), lambda hello: b'"raw"' in hello) is not None:
                return
        raise TimeoutError(f"no answer from {self.spec.id}")

    def processes(self) -> list[int]:
        """Every process that serves it, its stubs included."""
        roots = processes_of(str(self.spec.directory))
        return roots + [child for root in roots for child in _descendants(root)]

    def remove(self) -> None:
        """End it and forget it."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self.spec.directory)

    def _launch(self, *verb: str) -> None:
        directory = self.spec.directory
        with (directory / "err").open("wb") as err:
            ends = [fifo.open_fifo(directory / fifo.TO_AGENT), fifo.open_fifo(directory / fifo.FROM_AGENT)]
            command = [*self._driver.command(self.spec), *verb, "-bundle", str(directory)]
            command += ["-pid-file", str(directory / "pid"), self.spec.id]
            subprocess.run(command, check=True, stdin=ends[0], stdout=ends[1], stderr=err, cwd="/")
        for end in ends:
            os.close(end)


def checkpoint(of: MachineSpec, to: Path) -> None:
    """``runsc checkpoint`` of a sandbox of ours, which goes on."""
    to.mkdir()
    flags = ["-leave-running", "-compression", "none", "-direct", "-image-path", str(to)]
    subprocess.run([*Gvisor().command(of), "checkpoint", *flags, of.id], check=True, stdout=subprocess.DEVNULL)


def processes_of(text: str) -> list[int]:
    """Return the processes whose command line has this in it, our own not counted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]
    except OSError:
        return []
    return children + [below for child in children for below in _descendants(child)]


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()
