"""A file system in a dict, with the answers that the agent gives for a real one."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_MAX_LINKS = 40
"""Symlinks followed on one path before it is called a loop, as Linux counts."""


class RefusedError(Exception):
    """A request that the agent answers with an error: (code, message)."""

    def __init__(self, code: str, message: str) -> None:
        """Keep both for the answer."""
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class Node:
    """One file, directory or symlink; never changed in place but by replacing it."""

    type: str
    mode: int
    data: bytes = b""
    target: str = ""
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    written: bool = False
    """Whether it was written after the boot, and so takes part of the machine's disk."""


class FileTree:
    """Absolute, normalised paths and what is at them; the root is ``/``."""

    def __init__(self, nodes: dict[str, Node], capacity: int) -> None:
        """Take over ``nodes``; ``capacity`` bytes may be written."""
        self.nodes = nodes
        self.capacity = capacity

    # -- paths ---------------------------------------------------------------------------------------------------------

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """Return where ``path`` leads, as Linux would find; its last part need not exist.

        Raises:
            RefusedError: a part on the way is missing, no directory, or a loop.
        """
        todo = [part for part in reversed(path.split("/")) if part]
        here = "/"
        links = 0
        while todo:
            part = todo.pop()
            node = self.nodes.get(here)
            if node is None:
                raise RefusedError("file-not-found", f"{path}: no such file or directory")
            if node.type != "directory":
                raise RefusedError("not-a-directory", f"{path}: not a directory")
            if part in {".", ".."}:
                here = here if part == "." else parent_of(here)
                continue
            there = join(here, part)
            found = self.nodes.get(there)
            if found is None or found.type != "symlink" or (not todo and not follow):
                here = there
                continue
            links += 1
            if links > _MAX_LINKS:
                raise RefusedError("symlink-loop", f"{path}: too many levels of symbolic links")
            if found.target.startswith("/"):
                here = "/"
            todo.extend(part for part in reversed(found.target.split("/")) if part)
        return here

    def get(self, path: str, *, follow: bool = True) -> tuple[str, Node]:
        """Return the real path and the node.

        Raises:
            RefusedError: ``file-not-found``.
        """
        real = self.resolve(path, follow=follow)
        node = self.nodes.get(real)
        if node is None:
            raise RefusedError("file-not-found", f"{path}: no such file or directory")
        return real, node

    def directory(self, path: str) -> str:
        """Return the real path of a directory.

        Raises:
            RefusedError: it is none.
        """
        real, node = self.get(path)
        if node.type != "directory":
            raise RefusedError("not-a-directory", f"{path}: not a directory")
        return real

    def children(self, real: str) -> list[str]:
        """Return the names in a directory, in order."""
        start = real.rstrip("/") + "/"
        return sorted(
            path[len(start) :]
            for path in self.nodes
            if path.startswith(start) and path != "/" and "/" not in path[len(start) :]
        )

    def below(self, real: str) -> list[str]:
        """Return every path under a directory, parents first."""
        start = real.rstrip("/") + "/"
        return sorted(path for path in self.nodes if path.startswith(start) and path != "/")

    # -- requests ------------------------------------------------------------------------------------------------------

    def read(self, path: str) -> Node:
        """Return the file at ``path``.

        Raises:
            RefusedError: there is none, or it is a directory.
        """
        _, node = self.get(path)
        if node.type == "directory":
            raise RefusedError("is-a-directory", f"{path}: is a directory")
        return node

    def write(self, path: str, node: Node, *, parents: bool = False, keep_mode: bool = False) -> None:
        """Put a file at ``path``, through symlinks, in the place of the one that was there.

        Raises:
            RefusedError: the directory is missing, a directory is there, or the disk is full.
        """
        if parents:
            self.mkdir(
                parent_of(join("/", path.strip("/"))), parents=True, mode=0o755, owner=(node.uid, node.gid), now_ns=0
            )
        real = self.resolve(path)
        self.directory(parent_of(real))
        old = self.nodes.get(real)
        if old is not None and old.type == "directory":
            raise RefusedError("is-a-directory", f"{path}: is a directory")
        freed = len(old.data) if old is not None and old.written else 0
        if self.used() - freed + len(node.data) > self.capacity:
            raise RefusedError("no-space", f"{path}: no space left on device")
        self.nodes[real] = replace(node, mode=old.mode if keep_mode and old is not None else node.mode, written=True)

    def mkdir(self, path: str, *, parents: bool, mode: int, owner: tuple[int, int], now_ns: int) -> bool:
        """Make a directory; False: with ``parents``, it was there.

        Raises:
            RefusedError: something is there, or the directory above is missing.
        """
        if parents:
            above = parent_of(join("/", path.strip("/")))
            if above != "/":
                self.mkdir(above, parents=True, mode=mode, owner=owner, now_ns=now_ns)
        real = self.resolve(path)
        there = self.nodes.get(real)
        if there is not None:
            if parents and there.type == "directory":
                return False
            raise RefusedError("file-exists", f"{path}: file exists")
        self.directory(parent_of(real))
        self.nodes[real] = Node("directory", mode, uid=owner[0], gid=owner[1], mtime_ns=now_ns, written=True)
        return True

    def remove(self, path: str, *, recursive: bool) -> None:
        """Remove what is at ``path``, a symlink itself.

        Raises:
            RefusedError: it is missing, or a directory that is not empty.
        """
        real, node = self.get(path, follow=False)
        inside = self.below(real) if node.type == "directory" else []
        if inside and not recursive:
            raise RefusedError("directory-not-empty", f"{path}: directory not empty")
        for gone in [*inside, real]:
            del self.nodes[gone]

    def move(self, source: str, target: str) -> None:
        """Rename, a symlink itself; a file at the target is replaced.

        Raises:
            RefusedError: the source is missing or the target cannot be.
        """
        old, node = self.get(source, follow=False)
        new = self.resolve(target, follow=False)
        self.directory(parent_of(new))
        there = self.nodes.get(new)
        if there is not None and there.type == "directory":
            if node.type != "directory":
                raise RefusedError("is-a-directory", f"{target}: is a directory")
            if self.below(new):
                raise RefusedError("directory-not-empty", f"{target}: directory not empty")
        moved = [old, *self.below(old)] if node.type == "directory" else [old]
        for path in moved:
            self.nodes[new + path[len(old) :]] = self.nodes.pop(path)

    def entry(self, real: str) -> dict[str, Any]:
        """Describe one node as ``stat`` and ``list`` do."""
        node = self.nodes[real]
        size = len(node.target) if node.type == "symlink" else len(node.data)
        name = real.rsplit("/", 1)[-1] or "/"
        described = {
            **_text("name", name),
            "type": node.type,
            "size": size,
            "mode": node.mode,
            "uid": node.uid,
            "gid": node.gid,
            "mtime_ns": node.mtime_ns,
        }
        return described | _text("target", node.target) if node.type == "symlink" else described

    def used(self) -> int:
        """Return the bytes of all that was written after the boot."""
        return sum(len(node.data) for node in self.nodes.values() if node.written)

    # -- archives ------------------------------------------------------------------------------------------------------

    def tar(self, path: str) -> bytes:
        """Return a pax archive of a directory's content, or of one file."""
        real, node = self.get(path)
        base = real if node.type == "directory" else parent_of(real)
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for each in self.below(real) if node.type == "directory" else [real]:
                name = each[len(base.rstrip("/")) + 1 :]
                archive.addfile(*_member(name, self.nodes[each]))
        return out.getvalue()

    def untar(self, path: str, data: bytes, owner: tuple[int, int] | None) -> tuple[int, int]:
        """Unpack an archive below ``path``, all of it or nothing; return how many files and bytes.

        Raises:
            RefusedError: it is no archive, or something in it leads out of ``path``.
        """
        root = self.directory(path)
        trial = FileTree(dict(self.nodes), self.capacity)
        files = size = 0
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
                for member in archive:
                    node = trial._unpack(root, archive, member, owner)
                    files += node.type == "file"
                    size += len(node.data)
        except tarfile.TarError as error:
            raise RefusedError("bad-archive", str(error)) from error
        self.nodes.clear()
        self.nodes.update(trial.nodes)
        return files, size

    def _unpack(
        self, root: str, archive: tarfile.TarFile, member: tarfile.TarInfo, owner: tuple[int, int] | None
    ) -> Node:
        uid, gid = owner or (member.uid, member.gid)
        node = Node("file", member.mode & 0o7777, uid=uid, gid=gid, mtime_ns=int(member.mtime * 10**9), written=True)
        real = self._inside(root, member.name, follow=member.isdir())
        self.mkdir(parent_of(real), parents=True, mode=0o755, owner=(uid, gid), now_ns=node.mtime_ns)
        if member.isdir():
            node.type = "directory"
        elif member.issym():
            node.type, node.target = "symlink", member.linkname
        elif member.islnk():
            node.data = self.nodes[self._inside(root, member.linkname, follow=True)].data
        elif member.isreg():
            content = archive.extractfile(member)
            node.data = b"" if content is None else content.read()
        else:
            raise RefusedError("bad-archive", f"{member.name}: an entry of a kind that is not unpacked")
        if self.used() + len(node.data) > self.capacity:
            raise RefusedError("no-space", f"{member.name}: no space left on device")
        if real != root:
            self.nodes[real] = node
        return node

    def _inside(self, root: str, name: str, *, follow: bool) -> str:
        """Return where an entry lands, its missing directories made up.

        Raises:
            RefusedError: ``unsafe-path``: not below ``root``.
        """
        here = root
        parts = [part for part in name.split("/") if part not in {"", "."}]
        if name.startswith("/") or ".." in parts:
            raise RefusedError("unsafe-path", f"{name}: leads out of the directory")
        for index, part in enumerate(parts):
            there = join(here, part)
            is_last = index == len(parts) - 1
            if there in self.nodes:
                there = self.resolve(there, follow=follow or not is_last)
            if there != root and not there.startswith(root.rstrip("/") + "/"):
                raise RefusedError("unsafe-path", f"{name}: leads out of the directory")
            here = there
        return here


def _text(key: str, value: str) -> dict[str, str]:
    """Return a name as JSON can carry it: beside a lossy text as base64 where it is not UTF-8."""
    raw = value.encode("utf-8", "surrogateescape")
    lossy = raw.decode("utf-8", "replace")
    return {key: value} if lossy == value else {key: lossy, f"{key}_b64": base64.b64encode(raw).decode()}


def _member(name: str, node: Node) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    member = tarfile.TarInfo(name)
    member.mode, member.uid, member.gid, member.mtime = node.mode, node.uid, node.gid, node.mtime_ns // 10**9
    if node.type == "directory":
        member.type = tarfile.DIRTYPE
    elif node.type == "symlink":
        member.type, member.linkname = tarfile.SYMTYPE, node.target
    member.size = len(node.data)
    return member, io.BytesIO(node.data) if node.type == "file" else None


def join(directory: str, name: str) -> str:
    """Return the path of ``name`` in ``directory``."""
    return f"{directory.rstrip('/')}/{name}"


def parent_of(path: str) -> str:
    """Return the directory that a normalised path is in."""
    return path.rsplit("/", 1)[0] or "/"


def seeded(programs: Iterator[str] | list[str], hostname: str) -> dict[str, Node]:
    """Return a small Linux: directories, /etc files, and the fake's programs as executable files."""
    directories = "/ /bin /dev /etc /home /root /run /usr /usr/bin /var"
    nodes = {path: Node("directory", 0o755) for path in directories.split()}
    nodes["/tmp"] = Node("directory", 0o1777)  # noqa: S108 - a path inside the sandbox
    nodes["/home/user"] = Node("directory", 0o755, uid=1000, gid=1000)
    users = (
        "root:x:0:0:root:/root:/bin/sh\n"
        "user:x:1000:1000::/home/user:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    texts = {
        "/etc/passwd": users,
        "/etc/group": "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n",
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {hostname}\n",
        "/etc/machine-id": "0" * 32 + "\n",
    }
    for path, text in texts.items():
        nodes[path] = Node("file", 0o644, data=text.encode())
    for name in programs:
        nodes[f"/bin/{name}"] = Node("file", 0o755, data=program_file(name))
    return nodes


_PROGRAM = b"\x7fFAKE "


def program_file(name: str) -> bytes:
    """Return the content of a built-in program's file."""
    return _PROGRAM + name.encode()


def program_in(data: bytes) -> str | None:
    """Return which built-in program a file holds; None: none."""
    return data[len(_PROGRAM) :].decode() if data.startswith(_PROGRAM) else None
