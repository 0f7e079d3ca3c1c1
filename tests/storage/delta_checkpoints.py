"""Checkpoints of Delta logs, as Delta writes them: one row for each action."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

_STRINGS = pa.map_(pa.string(), pa.string())
_FILE = [
    ("path", pa.string()),
    ("partitionValues", _STRINGS),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("stats", pa.string()),
]
_META = [
    ("id", pa.string()),
    ("schemaString", pa.string()),
    ("partitionColumns", pa.list_(pa.string())),
    ("configuration", _STRINGS),
    ("createdTime", pa.int64()),
]
_REMOVE = [("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]
_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        ("add", pa.struct(_FILE)),
        ("remove", pa.struct(_REMOVE)),
        ("metaData", pa.struct(_META)),
        ("protocol", pa.struct([("minReaderVersion", pa.int32())])),
        ("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])),
    ]
)


def write_checkpoint(file: Path, *actions: dict[str, Any]) -> None:
    """Write one file of a checkpoint."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [{name: one.get(name) for name in _SCHEMA.names} for one in actions]
    for row in rows:
        if row["metaData"] is not None:
            conf = row["metaData"].get("configuration", {})
            row["metaData"] = row["metaData"] | {"configuration": list(conf.items())}
        if row["add"] is not None:
            row["add"] = row["add"] | {"partitionValues": [("day", "1")], "dataChange": False}
    parquet.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), file)
