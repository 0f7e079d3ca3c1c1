"""Parse the files of a Delta table's log (`_delta_log`), without Spark.

`N.json` is the commit of version N: one action per line. `N.crc` describes the table as of version
N; by default, Delta writes it with each commit. `_last_checkpoint` contains the version of the
newest checkpoint.

Source: Delta's PROTOCOL.md ("Delta Log Entries", "Version Checksum File", "Last Checkpoint File"),
checked with Delta 4.4.0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from headgate_ground.tolerant.values import at_ms, count, whole

LOG = "_delta_log"  # the log's folder in the table
LAST_CHECKPOINT = "_last_checkpoint"
#: Delta's defaults (`DeltaConfigs`): a table's configuration has no entry for them.
LOG_RETENTION, FILE_RETENTION = timedelta(days=30), timedelta(days=7)

_COMMIT = re.compile(r"(\d{20})\.json")
_UNITS = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_PART = re.compile(rf"([+-]?\d{{1,12}})\s+({'|'.join(_UNITS)})s?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a table: what its commit added and removed."""

    version: int
    at: datetime | None = None  # when it was committed; None if the commit does not say
    added: tuple[tuple[str, int | None], ...] = ()  # (path, bytes) of data that readers get
    removed: tuple[tuple[str, datetime | None], ...] = ()  # (path, when it was removed)
    txns: Mapping[str, int] = field(default_factory=dict)  # application id -> its version
    table: str = ""  # the table's id, if the commit sets it
    conf: Mapping[str, str] | None = None  # the table's configuration, if the commit sets it
    whole: bool = True  # False: a line could not be read, so the other fields may be incomplete


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as of one version; what is unknown is None."""

    version: int
    table: str = ""  # its id; "" if unknown
    conf: Mapping[str, str] | None = None
    files: int | None = None
    bytes: int | None = None
    txns: Mapping[str, int] | None = None  # application id -> its newest version

    @property
    def log_retention(self) -> timedelta | None:
        """Return how long log files are kept; None if unknown or unlimited."""
        if self.conf is None or self.conf.get("delta.enableExpiredLogCleanup") == "false":
            return None
        return _retention(self.conf, "delta.logRetentionDuration", LOG_RETENTION)

    @property
    def file_retention(self) -> timedelta | None:
        """Return how long VACUUM keeps removed files by default; None if unknown."""
        if self.conf is None:
            return None
        return _retention(self.conf, "delta.deletedFileRetentionDuration", FILE_RETENTION)


def commit_name(version: int) -> str:
    """Return the name of a version's commit."""
    return f"{version:020}.json"


def checksum_name(version: int) -> str:
    """Return the name of the file that describes the table as of a version."""
    return f"{version:020}.crc"


def version_of(name: str) -> int | None:
    """Return the version of a commit's name; None for any other name."""
    found = _COMMIT.fullmatch(name)
    return whole(found[1]) if found else None


def read_commit(version: int, text: bytes) -> Commit:
    """Return the contents of a commit; lines that cannot be read are skipped."""
    actions, complete = [], True
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        action = _object(line)
        complete &= action is not None
        actions.append(action or {})
    info = _first(actions, "commitInfo")
    meta = _first(actions, "metaData")
    added, removed, txns = [], [], {}
    for action in actions:
        match action:
            case {"add": {"path": str(path), **file}}:
                if file.get("dataChange") is not False:
                    added.append((path, count(file.get("size"))))
            case {"remove": {"path": str(path), **file}}:
                removed.append((path, at_ms(file.get("deletionTimestamp"))))
            case {"txn": {"appId": str(app), "version": number}} if count(number) is not None:
                txns[app] = number
            case {"add": _} | {"remove": _} | {"txn": _}:
                complete = False
    return Commit(
        version=version,
        at=at_ms(info.get("inCommitTimestamp")) or at_ms(info.get("timestamp")),
        added=tuple(added),
        removed=tuple(removed),
        txns=txns,
        table=_text(meta.get("id")),
        conf=_conf(meta) if meta else None,
        whole=complete,
    )


def read_checksum(version: int, text: bytes) -> TableState:
    """Return the table as of a version, from its checksum file; what cannot be read is unknown."""
    told = _object(text) or {}
    meta = told.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    listed = told.get("setTransactions")
    txns: dict[str, int] | None = None
    if isinstance(listed, list):
        txns = {
            one["appId"]: one["version"]
            for one in listed
            if isinstance(one, dict)
            and isinstance(one.get("appId"), str)
            and count(one.get("version")) is not None
        }
    return TableState(
        version=version,
        table=_text(meta.get("id")),
        conf=_conf(meta) if meta else None,
        files=count(told.get("numFiles")),
        bytes=count(told.get("tableSizeBytes")),
        txns=txns,
    )


def read_last_checkpoint(text: bytes) -> int | None:
    """Return the version in `_last_checkpoint`; None if it cannot be read."""
    return count((_object(text) or {}).get("version"))


def interval(text: str) -> timedelta | None:
    """Return a duration such as "interval 30 days" or "1 day 12 hours"; None if it is not one.

    Delta does not allow months and years.
    """
    rest = text.strip()
    if rest[:9].lower() == "interval ":
        rest = rest[9:].strip()
    total, found = timedelta(), False
    while rest:
        part = _PART.match(rest)
        if part is None:
            return None
        try:
            total += int(part[1]) * _UNITS[part[2].lower()]
        except OverflowError:
            return None
        rest, found = rest[part.end() :].strip(), True
    return total if found and total >= timedelta() else None


def _retention(conf: Mapping[str, str], key: str, default: timedelta) -> timedelta | None:
    return interval(conf[key]) if key in conf else default


def _conf(meta: Mapping[str, Any]) -> dict[str, str]:
    told = meta.get("configuration")
    return {str(key): str(value) for key, value in told.items()} if isinstance(told, dict) else {}


def _first(actions: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next((one[kind] for one in actions if isinstance(one.get(kind), dict)), {})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
