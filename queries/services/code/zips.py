"""Read a zip or a wheel as a code archive, under the same rules as a tar."""

import stat
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, cast

from queries.domain.code.archive import Member, problem

#: The first bytes of a zip with files, and of an empty one (APPNOTE.TXT 4.3.7, 4.3.16).
MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
#: Exceptions that Python raises for damaged or malicious zips.
FAULTS = (zipfile.BadZipFile, NotImplementedError, struct.error)
#: Most bytes per read: a zip's member list is read as a whole, and takes about ten times as much
#: memory. This is enough for 20,000 names of 350 bytes.
_READ_AT_ONCE = 8 * 1024 * 1024
#: The two methods with bounded decompression; ordinary zips need no other.
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED = 1  # bit in a member's flags
WAY_OUT = "Pack it as a plain zip."


def members(file: IO[bytes]) -> Iterator[tuple[Member, IO[bytes]]]:
    """Yield each member of a zip with its content, which is read only for files.

    Raises `Invalid` for a forbidden member, and one of `FAULTS` for a damaged zip.
    """
    with zipfile.ZipFile(cast(IO[bytes], _Careful(file))) as archive:
        for info in archive.infolist():
            member = Member(info.orig_filename, _kind(info), info.file_size)
            if info.flag_bits & _ENCRYPTED:
                raise problem(member.name, "is encrypted.", "Pack it without a password.")
            if info.compress_type not in _METHODS:
                raise problem(member.name, "uses an unsupported compression method.", WAY_OUT)
            with archive.open(info) as content:
                yield member, content


def _kind(info: zipfile.ZipInfo) -> str:
    """Return a member's type; the upper 16 bits are the mode if it was packed on Unix."""
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "no plain file"
    return "folder" if info.is_dir() else "file"


class _OutOfReach(zipfile.BadZipFile, OSError):
    """A seek to before the file; also an `OSError`, so that Python treats the zip as truncated."""


class _Careful:
    """A file that refuses large reads and seeks before its beginning."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.tell, self.seekable = file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; raise if more are requested than a zip's file list may have."""
        if size > _READ_AT_ONCE:
            raise zipfile.BadZipFile(f"its file list is longer than {_READ_AT_ONCE:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek; raise if the position is before the file."""
        try:
            return self._file.seek(offset, whence)
        except (OSError, ValueError, OverflowError):
            raise _OutOfReach("it refers to a position outside the file") from None
