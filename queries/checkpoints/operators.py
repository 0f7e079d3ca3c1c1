"""List a checkpoint's state operators: their kinds, stores, partitions and sizes.

The information comes from `state/<op>/_metadata` and the folders themselves. The row counts of
stores are not in any plain file; they come from the query's progress.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headgate_ground.files import read_bytes
from headgate_ground.untrusted import walk
from queries.checkpoints import state_files
from queries.checkpoints.logs import CheckpointLogs, numbers_in

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
        """Return the largest partition's size divided by the others' mean; None without others."""
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
            file = state_files.parse(name)
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
