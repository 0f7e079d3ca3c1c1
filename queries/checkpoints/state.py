"""Read a checkpoint's state: operators, the files of their stores, and the Spark that wrote it.

State version V is the state after batch V-1. For each version, a store's folder contains a change
(`V.delta`, `V.changelog`) or the complete state (`V.snapshot`, `V.zip`); with state format 2, the
name includes the commit's unique ID, `V_ID.zip`. A zip lists the SST files that belong to it, which
are stored in the folder `SSTs` next to it.

The information comes from `state/<op>/_metadata` and the folders themselves. The row counts of
stores are not in any plain file; they come from the query's progress.
"""

import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headgate_ground.files import open_plain, read_bytes
from headgate_ground.untrusted import walk
from queries.checkpoints.logs import CheckpointLogs, numbers_in
from queries.domain.checkpoints.logs import UnreadableLog
from queries.domain.sparks import Written

#: Bytes of a zip's list of files; each takes about 150.
MOST_OF_ABOUT = 16 * 1024 * 1024
_VERSION = re.compile(
    r"([0-9]{1,18})(?:_([0-9a-f-]+))?\.(delta|changelog|snapshot|zip)(\.crc)?", re.IGNORECASE
)
_WHOLE = frozenset({"snapshot", "zip"})
SSTS = "SSTs"


@dataclass(frozen=True, slots=True)
class StateFile:
    """The information in a state file's name."""

    version: int
    unique_id: str  # for state format 2; otherwise ""
    whole: bool  # can be loaded by itself; otherwise a change to the version below
    kind: str  # "delta", "changelog", "snapshot", "zip"
    checksum: bool  # the visible ".crc" next to a file of state format 2


def parse(name: str) -> StateFile | None:
    """Parse a file's name; None if it is not a version of a store."""
    match = _VERSION.fullmatch(name)
    if match is None:
        return None
    kind = match[3].lower()
    return StateFile(int(match[1]), match[2] or "", kind in _WHOLE, kind, match[4] is not None)


def stores(state: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder that contains versions of a store, with the names in it.

    `state` is the checkpoint's folder with that name, which may be missing.
    """
    for folder, _, names, _ in walk(state):
        if any(parse(name) is not None for name in names):
            yield folder, names


def missing_version(names: list[str], wanted: int) -> int | None:
    """Return the version whose absence prevents loading `wanted`; None if it can be loaded."""
    files = [file for name in names if (file := parse(name)) is not None and not file.checksum]
    changes = {file.version for file in files if not file.whole}
    base = max((file.version for file in files if file.whole and file.version <= wanted), default=0)
    for version in range(wanted, base, -1):
        if version not in changes:
            return version
    return None


def sst_files(archive: Path) -> set[str]:
    """Return the names of the SST files that a zip needs.

    Raises OSError or `zipfile.BadZipFile` if the zip is missing or truncated.
    """
    with (
        os.fdopen(open_plain(archive, within=archive.parent), "rb") as file,
        zipfile.ZipFile(file) as opened,
        opened.open("metadata") as entry,
    ):
        text = entry.read(MOST_OF_ABOUT + 1)  # a small zip can hold much more
    if len(text) > MOST_OF_ABOUT:
        raise zipfile.BadZipFile(f"its metadata has more than {MOST_OF_ABOUT >> 20} MiB")
    about = orjson.loads(text.partition(b"\n")[2])
    return {entry["dfsSstFileName"] for entry in about.get("sstFiles", ())}


#: Maximum files examined for the sizes; if there are more, sizes are shown as "at least".
FILES_AT_MOST = 20_000


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of an operator, with all stores."""

    number: int
    version: int | None  # the newest state version in it
    bytes: int  # of its files on disk, for all versions


@dataclass(frozen=True, slots=True)
class StateOperator:
    """One state operator."""

    number: int
    name: str  # Spark's name: "stateStoreSave", "dedupe", "symmetricHashJoin"…; "" if unknown
    stores: tuple[str, ...]
    kind: str  # "HDFS-backed", "RocksDB", "RocksDB with changelogs"; "" if there are no files
    partitions: tuple[Partition, ...]
    partial: bool  # there were more files than were examined

    @property
    def bytes(self) -> int:
        """Return the size of all the operator's files on disk, in bytes."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    def largest(self) -> Partition | None:
        """Return the largest partition on disk."""
        return max(self.partitions, key=lambda each: each.bytes, default=None)

    @property
    def skew(self) -> float | None:
        """Return the largest partition's size divided by the mean of the rest; None without any."""
        others = sorted(partition.bytes for partition in self.partitions)[:-1]
        mean = sum(others) / len(others) if others else 0
        return self.largest.bytes / mean if self.largest and mean else None


def operators(logs: CheckpointLogs) -> list[StateOperator]:
    """Return the checkpoint's state operators in order; [] for a stateless query."""
    state = logs.root / "state"
    left = [FILES_AT_MOST]
    return [_operator(state / str(number), number, left) for number in numbers_in(state)]


def operator_names(logs: CheckpointLogs) -> tuple[str, ...]:
    """Return Spark's names of the state operators in order, "" for an unknown one."""
    state = logs.root / "state"
    return tuple(_name(_metadata(state / str(number))) for number in numbers_in(state))


def _name(about: dict[str, Any]) -> str:
    own = about.get("operatorInfo")
    return str(own.get("operatorName", "")) if isinstance(own, dict) else ""


def _operator(folder: Path, number: int, left: list[int]) -> StateOperator:
    about = _metadata(folder)
    kinds: set[str] = set()
    partitions = [
        _partition(folder / str(partition), partition, kinds, left)
        for partition in numbers_in(folder)
    ]
    stores = about.get("stateStoreInfo") or about.get("stateStoresInfo")
    return StateOperator(
        number=number,
        name=_name(about),
        stores=tuple(
            str(store.get("storeName", "default"))
            for store in (stores if isinstance(stores, list) else ())
            if isinstance(store, dict)
        ),
        kind=_kind(kinds),
        partitions=tuple(partitions),
        partial=left[0] <= 0,
    )


def _partition(folder: Path, number: int, kinds: set[str], left: list[int]) -> Partition:
    version, size = None, 0
    for _, folders, names, within in walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if left[0] <= 0:
                break
            left[0] -= 1
            try:
                size += os.stat(name, dir_fd=within, follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
            file = parse(name)
            if file is not None:
                kinds.add(file.kind)
                version = max(file.version, version or 0)
    return Partition(number, version, size)


def _kind(kinds: set[str]) -> str:
    if "changelog" in kinds:
        return "RocksDB with changelogs"
    if "zip" in kinds:
        return "RocksDB"
    return "HDFS-backed" if kinds else ""


def _metadata(folder: Path) -> dict[str, Any]:
    """Return an operator's own metadata: from a single file, or the newest of one per batch."""
    path = folder / "_metadata" / "metadata"
    if not path.exists():
        versions = folder / "_metadata" / "v2"
        path = versions / str(max(numbers_in(versions), default=0))
    try:
        lines = read_bytes(path, within=folder).decode().split("\n", 1)
        metadata = orjson.loads(lines[1])
    except (OSError, ValueError, IndexError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def written(logs: CheckpointLogs) -> Written | None:
    """Return the state of a checkpoint's newest batch; None if there is none, or it is damaged.

    `logs` may be a mirror of a checkpoint on remote storage: it has the operators' metadata too.
    """
    newest = max(logs.begun(), default=None)
    offsets = logs.readable_offsets(newest) if newest is not None else None
    if offsets is None:
        return None
    committed = logs.last_commit()
    try:
        commit = logs.commit(committed) if committed is not None else None
    except UnreadableLog:
        return None
    return Written(
        offsets.version,
        commit.version if commit is not None else "v1",
        offsets.conf,
        operator_names(logs),
    )
