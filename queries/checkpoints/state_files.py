"""Read the names of files in state stores: versions, and whether a version can be loaded.

State version V is the state after batch V-1. For each version, a store's folder contains a change
(`V.delta`, `V.changelog`) or the complete state (`V.snapshot`, `V.zip`); with state format 2, the
name includes the commit's unique ID, `V_ID.zip`. A zip lists the SST files that belong to it, which
are stored in the folder `SSTs` next to it.
"""

import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from headgate_ground.files import open_plain
from headgate_ground.untrusted import walk

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
