"""Unpack an archive of code into the place that its content names: whole, or not at all.

Uploads and what git gives come through here. Nothing of an archive is written before its header
has been judged (`queries.domain.code.archive`), and nothing outside of a draft of its own.
"""

import gzip
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from django.conf import settings

from queries.code_roots import (
    FILES_AT_MOST,
    LIMIT_BYTES,
    digest_of,
    files_of,
    is_left_out,
)
from queries.domain.code.archive import MEMBERS_PER_FILE, Judge, Member, problem
from queries.files import use_folder

_BLOCK = 512  # bytes; a tar consists of them, and ends with empty ones (POSIX pax)
_GZIP = b"\x1f\x8b"
#: With headers: for each member two blocks and, if its name is long, two more.
_READ_MOST = LIMIT_BYTES + MEMBERS_PER_FILE * FILES_AT_MOST * 4 * _BLOCK
DRAFT = ".draft-"
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_WAY_OUT = "Pack it again, as `tar -czf code.tar.gz -C FOLDER .` does."


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Code that lies in its place."""

    sha256: str
    files: int
    bytes: int
    is_new: bool  # it was not there before


def unpack(archive: IO[bytes]) -> Unpacked:
    """Unpack a tar, plain or by gzip, to `CODE_DIR/<sha256>/0`; raise `Invalid` for a bad one.

    The same files give the same place, whatever the archive's order, times and owners.
    """
    code_dir = Path(settings.CODE_DIR)
    code_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=code_dir))
    source = _Counted(archive)
    try:
        root = draft / "0"
        root.mkdir(mode=0o700)
        with _bad_archives(source):
            _write(cast(IO[bytes], source), root)
        files = list(files_of((str(root),)))
        if not files:
            raise problem(source.said, "contains no file of code.", _WAY_OUT)
        sha256 = digest_of(files)
        size = sum((root / name).stat().st_size for _, _, name in files)
        return Unpacked(sha256, len(files), size, _put_in_place(draft, code_dir / sha256))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put_in_place(draft: Path, place: Path) -> bool:
    """Give a draft its name; return whether nothing was there by it."""
    if use_folder(place):
        return False
    try:
        draft.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        return False  # somebody was first, with the same content
    return True


@contextmanager
def _bad_archives(source: "_Counted") -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise problem(source.said, f"cannot be read: {error}.", _WAY_OUT) from error
    except (RecursionError, OverflowError, ValueError, UnicodeError) as error:
        raise problem(source.said, f"is not a tar ({type(error).__name__}).", _WAY_OUT) from error


def _write(archive: IO[bytes], root: Path) -> None:
    """Write the files of an archive below a new folder."""
    judge = Judge(most_bytes=LIMIT_BYTES, most_files=FILES_AT_MOST)
    source = _Bounded(_plain(archive))
    # A stream: what a header claims cannot lead back, nor beyond what has been read.
    with tarfile.open(fileobj=cast(IO[bytes], source), mode="r|") as tar:
        for info in tar:
            member = Member(info.name, _kind(info), info.size)
            path = judge.judge(member)
            if member.kind == "file" and not is_left_out(path):
                _write_file(tar, info, root / path)
    source.require_end()


def _kind(info: tarfile.TarInfo) -> str:
    if info.issparse():
        return _KINDS[tarfile.GNUTYPE_SPARSE]
    if info.isdir():
        return "folder"
    return "file" if info.isreg() else _KINDS.get(info.type, "no plain file")


def _write_file(tar: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = tar.extractfile(info)
    assert content is not None, "a plain file has content"
    with path.open("xb") as file:
        shutil.copyfileobj(content, file)
        if file.tell() != info.size:
            raise tarfile.ReadError("unexpected end of data")
    path.chmod(0o600)


def _plain(archive: IO[bytes]) -> IO[bytes]:
    head = archive.read(2)
    whole = cast(IO[bytes], _Joined(head, archive))
    return cast(IO[bytes], gzip.GzipFile(fileobj=whole, mode="rb")) if head == _GZIP else whole


class _Counted:
    """A stream that knows how much of it has been read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self._count = source, 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._source.read(size)
        self._count += len(data)
        return data

    @property
    def said(self) -> str:
        """Return what was sent, as far as it was read."""
        return f"{self._count:,} bytes"


class _Joined:
    """A stream whose first bytes have been looked at."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        if not self._head:
            return self._rest.read(size)
        head, self._head = self._head, b""
        if 0 <= size <= len(head):
            self._head = head[size:]
            return head[:size]
        return head + self._rest.read(size - len(head) if size >= 0 else -1)


class _Bounded:
    """A stream of which no more is read than an archive may have, however well it is packed."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._read = 0
        self._tail = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes; raise `Invalid` beyond the limit."""
        data = self._source.read(size)
        self._read += len(data)
        if self._read > _READ_MOST:
            raise problem(
                f"more than {_READ_MOST:,} bytes",
                "is more than an archive of code may unpack to.",
                "Leave data out, or pack a smaller folder.",
            )
        self._tail = (self._tail + data)[-_BLOCK:]
        return data

    def require_end(self) -> None:
        """Raise where the archive does not end as a tar does: something of it may be missing."""
        while self.read(64 * 1024):
            pass
        if self._tail.strip(b"\0") or len(self._tail) < _BLOCK:
            raise tarfile.ReadError("its end is missing, or something follows it")
