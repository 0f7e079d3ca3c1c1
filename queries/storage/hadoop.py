"""Use Hadoop's file systems through a storage JVM, and a local disk with the same interface.

The JVM runs in its application's isolation, so its answers are checked like any other data from
there.
"""

import base64
import binascii
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from headgate_ground.files import NotPlain, open_plain
from headgate_ground.tolerant import at_ms, at_s, count
from queries.domain.definitions.locations import local_path

#: Seconds for a call that lists or reads: S3A repeats a failed request several times.
CALL_LIMIT_S = 60.0
#: Seconds for one part of a copy.
COPY_LIMIT_S = 300.0
#: Files per call: small enough that a call ends within its limit.
FILES_PER_READ, FILES_PER_COPY = 500, 200
#: Bytes of one answer: a listing of 200,000 names.
MOST_ANSWER = 64 * 1024 * 1024
#: Bytes that are read in one call; an answer has four thirds of that.
MOST_OF_PART = 16 * 1024 * 1024
_WORDS = {"denied": "the storage refused access", "missing": "it does not exist"}
_TOO_LARGE = "too_large"  # as in queries/jvm/StorageServer.java


#: Takes a part of a file: its name, the offset, the bytes, and the file's time.
Put = Callable[[str, int, bytes, datetime | None], None]
#: Returns a connected socket within seconds; raises `OSError` if the storage JVM does not listen.
Connect = Callable[[float], socket.socket]
_PART = 1024 * 1024  # bytes received at once


class StorageFailed(Exception):
    """The storage refused or failed; the message is a sentence with the storage's own words."""


class TooLarge(StorageFailed):
    """A file, or a set of files, is larger than the limit for one read."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file or folder in a listing."""

    name: str
    bytes: int
    modified_at: datetime | None  # None: the storage keeps no time for it
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found, in the storage's order."""

    entries: tuple[FileEntry, ...]
    more: bool  # the listing was cut at the requested number


@dataclass(frozen=True, slots=True)
class FileContent:
    """A small file."""

    data: bytes
    modified_at: datetime | None


@dataclass(frozen=True, slots=True)
class CopyDone:
    """The outcome of a copy."""

    files: int
    bytes: int
    missing: tuple[str, ...]  # names that were gone, which is normal while a query runs


class HadoopStorage:
    """The file systems of one application's class path and configuration.

    Places are folders as Spark writes them (`s3a://…`, `hdfs://…`, `file:///…`); names are relative
    to them. Every call is limited in time, and raises `StorageFailed`.
    """

    def __init__(self, connect: Connect, *, withheld: Sequence[str] = ()) -> None:
        """`connect` returns a connection to the storage JVM, within a number of seconds.

        `withheld` are the application's keys with which it does not run (`handed_to_storage`):
        every failure states them, because a missing key may be the cause.
        """
        self._connect = connect
        self._without = _without(withheld)

    def list(
        self, location: str, *, deep: bool = False, most: int, limit_s: float = CALL_LIMIT_S
    ) -> Listing:
        """List a folder or, with `deep`, all files below it; nothing if it is gone."""
        answer = self._request(
            location, limit_s=limit_s, verb="list", path=location, deep=deep, most=most
        )
        entries = tuple(
            FileEntry(str(name), count(size) or 0, None if folder else _time(ms), bool(folder))
            for name, size, ms, folder in _rows(answer, 4)
            if is_inside(str(name))  # an object store takes any name
        )
        return Listing(entries, bool(answer.get("more")))

    def read(self, location: str, names: Iterable[str], *, most: int) -> dict[str, FileContent]:
        """Return the contents of files of at most `most` bytes, without those that are gone."""
        contents = {}
        for part in _parts(names, FILES_PER_READ):
            answer = self._request(location, verb="read", path=location, names=part, most=most)
            for name, data, ms in _rows(answer, 3):
                if name not in part:
                    raise StorageFailed(f"{location}: {name!r} was not asked for.")
                try:
                    contents[name] = FileContent(base64.b64decode(data), _time(ms))
                except (binascii.Error, TypeError, ValueError) as error:
                    raise StorageFailed(f"{location}: an answer is damaged.") from error
        return contents

    def download(self, location: str, sizes: Mapping[str, int], put: Put) -> tuple[str, ...]:
        """Bring files here over the socket; return the names that were gone.

        `sizes` are their bytes as listed: no more are taken. `put` gets a file's parts in order.
        """
        missing: list[str] = []
        small: dict[str, int] = {}

        def read() -> None:
            contents = self.read(location, small, most=MOST_OF_PART)
            for name, size in small.items():
                if (content := contents.get(name)) is None:
                    missing.append(name)
                elif len(content.data) != size:
                    raise StorageFailed(f"{location}/{name} changed while it was copied.")
                else:
                    put(name, 0, content.data, content.modified_at)
            small.clear()

        for name, size in sizes.items():
            if size > MOST_OF_PART:
                if not self._download_large(location, name, size, put):
                    missing.append(name)
                continue
            if sum(small.values()) + size > MOST_OF_PART or len(small) == FILES_PER_READ:
                read()
            small[name] = size
        read()
        return tuple(missing)

    def _download_large(
        self,
        location: str,
        name: str,
        size: int,
        put: Callable[[str, int, bytes, datetime | None], None],
    ) -> bool:
        path = f"{location}/{inside(name)}"
        for offset in range(0, size, MOST_OF_PART):
            wanted = min(MOST_OF_PART, size - offset)
            answer = self._request(
                path, limit_s=COPY_LIMIT_S, verb="part", path=path, offset=offset, bytes=wanted
            )
            if answer.get("missing"):
                return False
            try:
                data = base64.b64decode(answer["content"])
            except (binascii.Error, KeyError, TypeError, ValueError) as error:
                raise StorageFailed(f"{path}: an answer is damaged.") from error
            if len(data) != wanted:
                raise StorageFailed(f"{path} changed while it was copied.")
            put(name, offset, data, _time(answer.get("modified_ms")))
        return True

    def write(self, location: str, name: str, data: bytes) -> None:
        """Write or replace a file."""
        path = f"{location}/{inside(name)}"
        self._request(path, verb="write", path=path, content=base64.b64encode(data).decode())

    def create(self, location: str, name: str, data: bytes) -> bool:
        """Create a file unless it exists; return whether this call created it.

        Of any number of callers at the same time, exactly one gets True; not on `file:`.
        """
        path = f"{location}/{inside(name)}"
        content = base64.b64encode(data).decode()
        return bool(self._request(path, verb="create", path=path, content=content).get("created"))

    def copy(self, location: str, names: Iterable[str], to: str) -> CopyDone:
        """Copy files to the same names below another folder, which may be on different storage."""
        files, size, missing = 0, 0, []
        for part in _parts(names, FILES_PER_COPY):
            answer = self._request(
                location,
                limit_s=COPY_LIMIT_S,
                verb="copy",
                **{"from": location, "to": to, "names": part},
            )
            files += count(answer.get("files")) or 0
            size += count(answer.get("bytes")) or 0
            missing += [str(name) for name in answer.get("missing", ())]
        return CopyDone(files, size, tuple(missing))

    def move(self, location: str, names: Iterable[str], to: str) -> int:
        """Move files to the same names below another folder of the same storage; return how many.

        Files that are gone are skipped. An interrupted call can be repeated: no file is removed
        before its copy is complete. Object stores copy each file, without the host in between.
        """
        return sum(
            count(
                self._request(
                    location,
                    limit_s=COPY_LIMIT_S,
                    verb="move",
                    **{"from": location, "to": to, "names": part},
                ).get("files")
            )
            or 0
            for part in _parts(names, FILES_PER_COPY)
        )

    def delete(self, location: str) -> None:
        """Delete a folder and everything below it; does nothing if it is gone."""
        self._request(location, limit_s=COPY_LIMIT_S, verb="delete", path=location)

    def _request(
        self, what: str, *, limit_s: float = CALL_LIMIT_S, **request: Any
    ) -> dict[str, Any]:
        try:
            answer = orjson.loads(self._exchange(orjson.dumps(request), limit_s))
        except TimeoutError as error:
            raise StorageFailed(f"{what}: no answer within {limit_s:.0f} s.") from error
        except (OSError, ValueError) as error:
            raise StorageFailed(f"{what}: the storage JVM does not answer ({error}).") from error
        if not isinstance(answer, dict):
            raise StorageFailed(f"{what}: an answer is damaged.")
        if kind := answer.get("error"):
            message = str(answer.get("message", ""))[:500]
            explanation = _WORDS.get(str(kind))
            failed = f"{what}: {explanation} ({message})." if explanation else f"{what}: {message}."
            kind_of_error = TooLarge if kind == _TOO_LARGE else StorageFailed
            raise kind_of_error(f"{failed}{self._without}")
        return answer

    def _exchange(self, line: bytes, limit_s: float) -> bytes:
        ends = time.monotonic() + limit_s
        with closing(self._connect(limit_s)) as link:
            link.settimeout(_left(ends))
            link.sendall(line + b"\n")
            answer = bytearray()
            while not answer.endswith(b"\n"):
                link.settimeout(_left(ends))  # one limit for the answer, however slowly it comes
                part = link.recv(min(_PART, MOST_ANSWER + 1 - len(answer)))
                answer += part
                if not part:
                    raise ValueError("it ended in the middle of an answer")
                if len(answer) > MOST_ANSWER:
                    raise ValueError(f"its answer has more than {MOST_ANSWER >> 20} MiB")
        return bytes(answer)


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _without(keys: Sequence[str]) -> str:
    """Return the sentence about withheld keys, after a space; "" if there are none."""
    if not keys:
        return ""
    listed = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
    return (
        f" The storage was read without {listed}: only settings that neither run a program nor "
        "specify a file or an unknown class apply when Headgate reads it."
    )


def is_inside(name: str) -> bool:
    """Return whether a relative name stays inside its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def inside(name: str) -> str:
    """Return a relative name; raise `StorageFailed` if it leads out of its folder."""
    if not is_inside(name):
        raise StorageFailed(f"{name!r} is not a name inside a folder.")
    return name


def _parts(names: Iterable[str], size: int) -> Iterator[list[str]]:
    wanted = [inside(name) for name in names]
    return (wanted[start : start + size] for start in range(0, len(wanted), size))


def _rows(answer: dict[str, Any], width: int) -> list[list[Any]]:
    rows = answer.get("found")
    if not isinstance(rows, list) or any(
        not isinstance(row, list) or len(row) != width for row in rows
    ):
        raise StorageFailed("A listing of the storage JVM is damaged.")
    return rows


def _time(ms: Any) -> Any:
    return at_ms(ms) if isinstance(ms, int) and ms > 0 else None


class LocalFiles:
    """The files of this host; raises `StorageFailed` with the system's reason."""

    def list(self, location: str, *, deep: bool = False, most: int) -> Listing:
        """List a folder, without sizes and times; nothing if it is gone.

        With `deep`, return all files below it, with sizes and times; links to folders are not
        followed.
        """
        if deep:
            return _all_files(_path(location), most)
        try:
            with os.scandir(_path(location)) as scan:
                entries: list[FileEntry] = []
                for entry in scan:
                    if len(entries) == most:
                        return Listing(tuple(entries), more=True)
                    entries.append(FileEntry(entry.name, 0, None))
        except (FileNotFoundError, NotADirectoryError):
            return Listing((), more=False)
        except OSError as error:
            raise StorageFailed(f"{location}: {error.strerror}.") from error
        return Listing(tuple(entries), more=False)

    def read(self, location: str, names: Iterable[str], *, most: int) -> dict[str, FileContent]:
        """Return the contents of files of at most `most` bytes, without those that are gone."""
        folder, contents = _path(location), {}
        for name in names:
            try:
                with os.fdopen(open_plain(folder / inside(name), within=folder), "rb") as file:
                    data = file.read(most + 1)
                    modified_at = at_s(os.fstat(file.fileno()).st_mtime)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (NotPlain, OSError) as error:
                raise StorageFailed(f"{location}/{name}: {error.strerror}.") from error
            if len(data) > most:
                raise TooLarge(f"{location}/{name} has more than {most} bytes.")
            contents[name] = FileContent(data, modified_at)
        return contents


def _all_files(folder: Path, most: int) -> Listing:
    entries: list[FileEntry] = []

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # gone meanwhile
            raise StorageFailed(f"{error.filename}: {error.strerror}.") from error

    for at, _, names in os.walk(folder, onerror=failed):
        for name in names:
            path = Path(at) / name
            try:
                about = path.stat()
            except FileNotFoundError:  # removed, or a link that leads nowhere
                continue
            except OSError as error:
                raise StorageFailed(f"{path}: {error.strerror}.") from error
            if len(entries) == most:
                return Listing(tuple(entries), more=True)
            relative = path.relative_to(folder).as_posix()
            entries.append(FileEntry(relative, about.st_size, at_s(about.st_mtime)))
    return Listing(tuple(entries), more=False)


def _path(location: str) -> Path:
    path = local_path(location)
    if path is None:
        raise StorageFailed(f"{location} is not on this host.")
    return Path(path)
