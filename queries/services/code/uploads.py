"""Accept uploaded code, and unpack an archive into its content-addressed folder: completely or
not at all.

Both uploads and git archives are unpacked here. Nothing is written before the member's header has
been checked (`queries.domain.code.archives`), and nothing is written outside a private draft
folder.
"""

import gzip
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, cast

from django.conf import settings
from django.db import transaction

from headgate_ground.files import use_folder
from queries.code_roots import FILES_AT_MOST, LIMIT_BYTES, digest_of, files_of, is_left_out
from queries.domain.access import Act
from queries.domain.code.archives import MEMBERS_PER_FILE, Judge, Member, problem
from queries.models.applications import UploadedCode
from queries.models.drivers import Installation
from queries.services.access.audit import record_act
from queries.services.access.tokens import allow_upload

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


_BLOCK = 512  # bytes; the unit of a tar, which ends with empty ones (POSIX pax)
_GZIP = b"\x1f\x8b"
#: Headers included: two blocks per member, and two more if its name is long.
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
_WAY_OUT = "Pack it again as a plain zip, or with `tar -czf code.tar.gz -C FOLDER .`."


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Code that has been unpacked into its folder."""

    sha256: str
    files: int
    bytes: int
    is_new: bool  # it did not exist before


def unpack(archive: IO[bytes], *, module: str = "") -> Unpacked:
    """Unpack a tar (plain or gzip), a zip or a wheel to `CODE_DIR/<sha256>/0`.

    If `module` is set, the upload is one file with this name, not an archive. Raises `Invalid` for
    an invalid archive. The same files always go to the same folder, regardless of archive format,
    order, times and owners.
    """
    code_dir = Path(settings.CODE_DIR)
    code_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=code_dir))
    source = _Counted(archive)
    try:
        root = draft / "0"
        root.mkdir(mode=0o700)
        with _bad_archives(source):
            _write(cast(IO[bytes], source), root, module)
        files = list(files_of((str(root),)))
        if not files:
            raise problem(source.size_text, "contains no code files.", _WAY_OUT)
        sha256 = digest_of(files)
        size = sum((root / name).stat().st_size for _, _, name in files)
        return Unpacked(sha256, len(files), size, _publish(draft, code_dir / sha256))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _publish(draft: Path, folder: Path) -> bool:
    """Rename a draft to its final folder; return whether that did not exist yet."""
    if use_folder(folder):
        return False
    try:
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        return False  # another process was first, with the same content
    return True


@contextmanager
def _bad_archives(source: "_Counted") -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, *FAULTS) as error:
        raise problem(source.size_text, f"cannot be read: {error}.", _WAY_OUT) from error
    except (RecursionError, OverflowError, ValueError, UnicodeError) as error:
        why = type(error).__name__
        raise problem(source.size_text, f"is not a readable archive ({why}).", _WAY_OUT) from error


def _write(archive: IO[bytes], root: Path, module: str) -> None:
    """Write the uploaded files below a new folder."""
    judge = Judge(most_bytes=LIMIT_BYTES, most_files=FILES_AT_MOST)
    head = archive.read(len(MAGIC[0]))
    whole = cast(IO[bytes], _Joined(head, archive))
    if module or head in MAGIC:  # must be read completely first: its size, or its end, decides
        with tempfile.TemporaryFile(dir=root.parent) as copy:
            shutil.copyfileobj(cast(IO[bytes], _Bounded(whole)), copy)
            size = copy.tell()
            copy.seek(0)
            alone = iter([(Member(module, "file", size), cast(IO[bytes], copy))])
            for member, content in alone if module else members(copy):
                _take(judge, member, content, root)
    elif head.startswith(_GZIP):
        _write_tar(judge, cast(IO[bytes], gzip.GzipFile(fileobj=whole, mode="rb")), root)
    else:
        _write_tar(judge, whole, root)


def _write_tar(judge: Judge, archive: IO[bytes], root: Path) -> None:
    source = _Bounded(archive)
    # As a stream: a header cannot point back, or beyond what has been read.
    with tarfile.open(fileobj=cast(IO[bytes], source), mode="r|") as tar:
        for info in tar:
            member = Member(info.name, _member_kind(info), info.size)
            _take(judge, member, tar.extractfile(info) if member.kind == "file" else None, root)
    source.require_end()


def _member_kind(info: tarfile.TarInfo) -> str:
    if info.issparse():
        return _KINDS[tarfile.GNUTYPE_SPARSE]
    if info.isdir():
        return "folder"
    return "file" if info.isreg() else _KINDS.get(info.type, "no plain file")


def _take(judge: Judge, member: Member, content: IO[bytes] | None, root: Path) -> None:
    """Write a member if it is a code file; `content` is None if the member is not a file."""
    name = judge.judge(member)
    if member.kind != "file" or is_left_out(name):
        return
    assert content is not None, "a plain file has content"
    path = root / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(content, file)
        if file.tell() != member.size:
            raise EOFError("unexpected end of data")
    path.chmod(0o600)


class _Counted:
    """A stream that counts the bytes read from it."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source, self._count = source, 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._source.read(size)
        self._count += len(data)
        return data

    @property
    def size_text(self) -> str:
        """Describe the number of bytes read so far."""
        return f"{self._count:,} bytes"


class _Joined:
    """A stream whose first bytes have already been read for inspection."""

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
    """A stream limited to an archive's maximum size, however well it is compressed."""

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
                "exceeds the limit for an unpacked code archive.",
                "Remove data, or choose a smaller folder.",
            )
        self._tail = (self._tail + data)[-_BLOCK:]
        return data

    def require_end(self) -> None:
        """Raise if the archive does not end as a tar must: part of it may be missing."""
        while self.read(64 * 1024):
            pass
        if self._tail.strip(b"\0") or len(self._tail) < _BLOCK:
            raise tarfile.ReadError("it is truncated, or has trailing data")


def take_upload(
    archive: IO[bytes], *, module: str = "", actor: str, now: datetime
) -> tuple[UploadedCode, bool]:
    """Store an archive's files by content hash; return the row, and whether it is new.

    If `module` is set, the upload is one Python file with this name; "" means an archive. Raises
    `Invalid` for an invalid archive, without keeping any of it, and `TooMany` if the actor uploads
    too often.
    """
    allow_upload(actor=actor, now=now)
    code = unpack(archive, module=module)
    with transaction.atomic():
        allow_upload(actor=actor, now=now)  # others may have uploaded while it was unpacked
        Installation.lock()  # pruning deletes rows under this lock
        row, made = UploadedCode.objects.get_or_create(
            sha256=code.sha256,
            defaults={
                "files": code.files,
                "bytes": code.bytes,
                "uploaded_at": now,
                "uploaded_by": actor,
                "host": settings.HEADGATE_HOST,
            },
        )
        if not made:
            host = settings.HEADGATE_HOST
            UploadedCode.objects.filter(pk=row.pk).update(uploaded_at=now, host=host)
        about = {"files": code.files, "bytes": code.bytes}
        record_act(Act.CODE_UPLOADED, actor=actor, now=now, subject=row.digest, **about)
    return row, made
