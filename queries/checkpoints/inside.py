"""Work in a folder whose contents a driver may replace at any time, through open descriptors only.

Names are relative to the folder; no name can lead upwards or through a link, no matter when the
link was created. So everything written ends up inside the folder, or nowhere.
"""

import errno
import os
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from headgate_ground.files import NotPlain, open_folder, open_plain, open_step

#: Folders kept open; a state with many partitions has thousands, and a process may open 1,024
#: files.
MOST_OPEN = 64
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Errors of link(2): the two files are on different file systems, or this one does not support
#: (more) links.
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class Inside:
    """An open folder, created if it is missing. Raises `NotPlain` if a link leads to it."""

    def __init__(self, root: Path, descriptor: int | None = None) -> None:
        """`descriptor` is the folder's, if it is already open; the caller must close it."""
        self.root = root
        root_descriptor = (
            open_folder(root, create=True) if descriptor is None else os.dup(descriptor)
        )
        self._open = {PurePosixPath(): root_descriptor}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def folder(self, name: str | PurePosixPath) -> int:
        """Return a subfolder's descriptor; create the subfolder if it is missing."""
        path = PurePosixPath(name)
        if (descriptor := self._open.get(path)) is not None:
            return descriptor
        if path.is_absolute() or ".." in path.parts:
            raise NotPlain(errno.EXDEV, f"leads out of {self.root}", str(path))
        outer = self.folder(path.parent)
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=outer)
        self._open[path] = descriptor = open_step(path.name, outer, shown=str(path))
        return descriptor

    def link(self, descriptor: int, name: str) -> None:
        """Link an open file into this folder under a name, or copy it if it cannot be linked."""
        folder, last = self._at(name)
        source = f"/proc/self/fd/{descriptor}"
        try:  # with a descriptor, because link(2) would not follow otherwise
            os.link(source, last, src_dir_fd=descriptor, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.copy(descriptor, name)

    def copy(self, descriptor: int, name: str) -> None:
        """Copy an open file, with its mode and times, to a new file in this folder."""
        folder, last = self._at(name)
        original = os.fstat(descriptor)
        with (
            os.fdopen(os.dup(descriptor), "rb") as source,
            os.fdopen(os.open(last, _NEW, 0o600, dir_fd=folder), "wb") as to,
        ):
            shutil.copyfileobj(source, to)
            to.flush()  # otherwise the times would be those of the last write
            os.fchmod(to.fileno(), original.st_mode & 0o777)
            os.utime(to.fileno(), ns=(original.st_atime_ns, original.st_mtime_ns))

    def write(self, name: str, text: str, mode: int = 0o666) -> None:
        """Write a new file; raise `FileExistsError` if the name is taken."""
        folder, last = self._at(name)
        with os.fdopen(os.open(last, _NEW, mode, dir_fd=folder), "w", encoding="utf-8") as file:
            file.write(text)

    def put(self, name: str, offset: int, data: bytes, modified_at: datetime | None = None) -> None:
        """Write a part of a file, which is a new one if the offset is 0."""
        folder, last = self._at(name)
        flags = _NEW if offset == 0 else os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(last, flags, 0o600, dir_fd=folder), "wb") as file:
            file.seek(offset)
            file.write(data)
            if modified_at is not None:
                file.flush()  # otherwise the time would be that of the last write
                at = modified_at.timestamp()
                os.utime(file.fileno(), (at, at))

    def size(self, name: str) -> int:
        """Return a file's size in bytes."""
        folder, last = self._at(name)
        return os.stat(last, dir_fd=folder, follow_symlinks=False).st_size

    def has(self, name: str) -> bool:
        """Return whether an entry with this name exists."""
        self._close_most()
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file; raise `FileNotFoundError` if it does not exist."""
        folder, last = self._at(name)
        os.unlink(last, dir_fd=folder)

    def rename(self, name: str, to: str) -> None:
        """Rename an entry in this folder."""
        (begin, last), (end, called) = self.existing(name), self._at(to)
        os.rename(last, called, src_dir_fd=begin, dst_dir_fd=end)

    def take(self, other: "Inside", name: str) -> None:
        """Move an entry from another folder to this one under the same name, if it exists."""
        try:
            begin, last = other.existing(name)
        except FileNotFoundError:
            return
        if not self.has(name):
            end, _ = self._at(name)
            os.rename(last, last, src_dir_fd=begin, dst_dir_fd=end)

    def existing(self, name: str) -> tuple[int, str]:
        """Split an existing path into folder and last part; raise `FileNotFoundError` otherwise."""
        self._close_most()
        path, outer = PurePosixPath(name), self._open[PurePosixPath()]
        if path.is_absolute() or ".." in path.parts:
            raise NotPlain(errno.EXDEV, f"leads out of {self.root}", str(path))
        for parent in reversed(path.parents[:-1]):
            if parent not in self._open:
                self._open[parent] = open_step(parent.name, outer, shown=str(parent))
            outer = self._open[parent]
        os.stat(path.name, dir_fd=outer, follow_symlinks=False)
        return outer, path.name

    def _close_most(self) -> None:
        if len(self._open) <= MOST_OPEN:
            return
        root = self._open.pop(PurePosixPath())
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open = {PurePosixPath(): root}

    def _at(self, name: str) -> tuple[int, str]:
        path = PurePosixPath(name)
        if path.name in ("", ".."):
            raise NotPlain(errno.EINVAL, "is not a valid name", name)
        return self.folder(path.parent), path.name


def copy_plain(source: Path, to: Inside, name: str) -> None:
    """Copy a regular file into a folder; skip one that is gone or not a regular file."""
    try:
        descriptor = open_plain(source, within=source.parent)
    except (FileNotFoundError, NotPlain):
        return
    try:
        to.copy(descriptor, name)
    finally:
        os.close(descriptor)
