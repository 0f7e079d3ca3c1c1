"""Parse the offsets of a Delta or an Iceberg source, from a checkpoint or a progress event.

Sources: Delta's DeltaSourceOffset (source versions 1 and 3) and Iceberg's StreamingOffset
(version 1), checked with Delta 4.4.0 and Iceberg 1.11.0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.tolerant.values import count


@dataclass(frozen=True, slots=True)
class DeltaOffset:
    """How far a source has read a Delta table: all before a version, and part of that version."""

    table: str  # the table's id
    version: int
    index: int  # the last file of the version that is read; negative: none of it is
    initial: bool = False  # `index` counts the files of the table as of the version


@dataclass(frozen=True, slots=True)
class IcebergOffset:
    """How far a source has read an Iceberg table: some files of a snapshot, and all before it."""

    snapshot: int | None  # None: nothing is read
    position: int = 0  # files of the snapshot that are read
    initial: bool = False  # `position` counts all files of the table as of the snapshot


def delta_offset(value: Any) -> DeltaOffset | None:
    """Return an offset of a Delta source; None for any other value."""
    if not isinstance(value, Mapping) or not isinstance(value.get("reservoirId"), str):
        return None
    version, index = count(value.get("reservoirVersion")), value.get("index")
    if version is None or type(index) is not int:
        return None
    return DeltaOffset(value["reservoirId"], version, index, value.get("isStartingVersion") is True)


def iceberg_offset(value: Any) -> IcebergOffset | None:
    """Return an offset of an Iceberg source; None for any other value.

    A source that started on an empty table has the snapshot -1.
    """
    if not isinstance(value, Mapping) or "snapshot_id" not in value:
        return None
    snapshot, position = value["snapshot_id"], count(value.get("position"))
    if snapshot == -1:
        return IcebergOffset(None)
    if count(snapshot) is None or position is None:
        return None
    return IcebergOffset(snapshot, position, value.get("scan_all_files") is True)
