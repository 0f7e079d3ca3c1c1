"""Logs of tables as Delta 4.4.0 and Iceberg 1.11.0 write them, shortened."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

#: A log as writers other than Spark leave it, without checksums: its versions 0 to 4.
WITHOUT_CHECKSUMS = Path(__file__).with_name("without_checksums")
#: The ID of its table.
UNCHECKED = "0b7c2a52-5d1e-4f0a-9a55-6f2b9f3c1d01"
QUERY = "6c0579f7-9d0e-4ede-ba69-50222dd5fe2c"
TABLE = "c0183fee-1b60-4f5a-88e1-0cf1868e6bf0"
ICEBERG_QUERY = "f2abc593-d7fb-4200-b1aa-d00a377fb263"


def ms(at: datetime) -> int:
    """Return a time as the logs have it."""
    return int(at.timestamp() * 1000)


def metadata(**conf: str) -> dict[str, Any]:
    """Return a table's metadata."""
    return {
        "id": TABLE,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": [],
        "configuration": conf,
        "createdTime": 1795743306867,
    }


def commit(
    at: datetime,
    *actions: dict[str, Any],
    batch: int | None = None,
    query: str = QUERY,
) -> bytes:
    """Return a commit: of a batch of a streaming query, if one is given."""
    info = {
        "timestamp": ms(at),
        "operation": "STREAMING UPDATE" if batch is not None else "WRITE",
        "operationParameters": {"outputMode": "Append", "queryId": query, "epochId": str(batch)},
        "engineInfo": "Apache-Spark/4.2.1 Delta-Lake/4.4.0",
        "txnId": "2e5f083a-12c2-49e2-8e55-a31ed9b49529",
    }
    lines: list[dict[str, Any]] = [{"commitInfo": info}]
    if batch is not None:
        lines.append({"txn": {"appId": query, "version": batch, "lastUpdated": ms(at)}})
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, *actions])


def add(name: str, size: int = 100, *, change: bool = True) -> dict[str, Any]:
    """Return the action that adds a file."""
    file = {
        "path": f"part-{name}.snappy.parquet",
        "partitionValues": {},
        "size": size,
        "modificationTime": 1795743443514,
        "dataChange": change,
        "stats": '{"numRecords":1200}',
    }
    return {"add": file}


def remove(name: str, at: datetime) -> dict[str, Any]:
    """Return the action that removes a file."""
    path = f"part-{name}.snappy.parquet"
    return {"remove": {"path": path, "deletionTimestamp": ms(at), "dataChange": False}}


def checksum(files: Any = 1, size: Any = 16366, txns: Any = (), **conf: Any) -> bytes:
    """Return the file that describes a table as of a version."""
    told = {
        "txnId": "2e5f083a-12c2-49e2-8e55-a31ed9b49529",
        "tableSizeBytes": size,
        "numFiles": files,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [
            {"appId": app, "version": version, "lastUpdated": 1795743444065}
            for app, version in txns
        ],
        "domainMetadata": [],
        "metadata": metadata(**conf),
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
    }
    return json.dumps(told).encode()


def snapshot(
    number: int,
    at: datetime,
    *,
    files: Any = 1,
    size: Any = 1000,
    operation: Any = "append",
    batch: Any = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the snapshot with a sequence number, which follows the one before it."""
    summary = {"operation": operation, "total-data-files": str(number), "total-records": "9"}
    if files:
        summary |= {"added-data-files": str(files), "added-files-size": str(size)}
    if batch is not None:
        summary |= {
            "spark.sql.streaming.queryId": ICEBERG_QUERY,
            "spark.sql.streaming.epochId": str(batch),
        }
    row = {
        "sequence-number": number,
        "snapshot-id": number * 1_000_003,
        "timestamp-ms": ms(at),
        "summary": summary,
        "manifest-list": f"s3a://lake/db/tab/metadata/snap-{number}.avro",
        "schema-id": 0,
    }
    if number > 1:
        row["parent-snapshot-id"] = (number - 1) * 1_000_003
    return row | fields


def iceberg(*snapshots: Any, refs: Any = None, **properties: str) -> bytes:
    """Return a table's metadata with these snapshots, of which the last is the current one."""
    current = snapshots[-1]["snapshot-id"] if snapshots else -1
    told = {
        "format-version": 2,
        "table-uuid": "3121fedd-c9eb-40bb-8705-e1c97a3aeb1b",
        "location": "s3a://lake/db/tab",
        "last-sequence-number": len(snapshots),
        "properties": {"owner": "root", **properties},
        "current-snapshot-id": current,
        "refs": refs or {"main": {"snapshot-id": current, "type": "branch"}},
        "snapshots": list(snapshots),
    }
    return json.dumps(told).encode()
