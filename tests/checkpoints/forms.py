"""Checkpoints as Spark 4.3 lays them out, written without Spark, for tests of what reads them."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

CONF = {"spark.sql.shuffle.partitions": "2"}


def write_checkpoint(
    root: Path,
    *,
    batches: range,
    store: str = "",
    in_flight: bool = False,
    source: str = "file",
    partitions: int = 2,
    files_a_batch: int = 1,
) -> Path:
    """Write a checkpoint whose `batches` are committed.

    `store`: "" for a stateless query, else "delta", "zip", "changelog" or "v2" (zip and
    changelog with unique ids). A file source has `files_a_batch` files in each batch.
    """
    for batch in [*batches, *([batches.stop] if in_flight else [])]:
        write_batch(
            root,
            batch,
            commit=batch in batches,
            source=source,
            files=files_a_batch,
        )
        if store:
            for partition in range(partitions):
                _write_state(root / "state/0" / str(partition), batch + 1, store)
    if store:
        put(root / "state/0/_metadata/metadata", 'v1\n{"operatorInfo":{"operatorId":0}}')
        put(root / "state/0/0/_metadata/schema", "schema")
    put(root / "metadata", '{"id":"3f0c8a2e-5f4d-4f0a-9f57-000000000001"}')
    put(root / ".metadata.crc", "crc")
    return root


def write_batch(
    root: Path, batch: int, *, commit: bool = True, source: str = "file", files: int = 1
) -> None:
    """Write one batch's offsets, its source's log and its commit."""
    about = {"batchWatermarkMs": 0, "batchTimestampMs": 1_772_452_800_000 + batch, "conf": CONF}
    end: Any = {"logOffset": batch} if source == "file" else {"flights": {"0": 10 * (batch + 1)}}
    put(root / f"offsets/{batch}", f"v1\n{json.dumps(about)}\n{json.dumps(end)}")
    put(root / f"offsets/.{batch}.crc", "crc")
    if source == "file":
        lines = [_file_line(f"file:///in/f{batch}-{n}.json", batch) for n in range(files)]
        put(root / f"sources/0/{batch}", "\n".join(["v1", *lines]))
    else:
        put(root / "sources/0/0", 'v1\n{"flights":{"0":0}}')
    if commit:
        put(root / f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')


def compact_source(root: Path, upto: int) -> None:
    """Compact a file source's log up to an entry, as Spark does, and purge what it holds."""
    lines = []
    for entry in range(upto + 1):
        place = root / f"sources/0/{entry}"
        lines += place.read_text().split("\n")[1:]
        place.unlink()
    put(root / f"sources/0/{upto}.compact", "\n".join(["v1", *lines]))


def write_output(out: Path, batch: int, uri: str = "") -> None:
    """Write what a file sink writes in a batch: a data file, and an entry of its log.

    `uri` is the sink's location in the log, if `out` is to be copied there.
    """
    name = f"part-{batch:05}-c000.json"
    put(out / name, f'{{"batch":{batch}}}\n')
    line = {"path": f"{uri or out.as_uri()}/{name}", "size": 12, "action": "add"}
    put(out / f"_spark_metadata/{batch}", f"v1\n{json.dumps(line)}")
    if not uri:
        put(out / f"_spark_metadata/.{batch}.crc", "crc")


def tree(root: Path) -> dict[str, str]:
    """Return every file under `root` with a hash of its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def names(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {path.name for path in folder.iterdir()}


def put(place: Path, text: str) -> None:
    """Write a file, its folders made."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def _file_line(path: str, entry: int) -> str:
    return json.dumps(
        {"path": path, "timestamp": 1_700_000_000_000, "batchId": entry}, separators=(",", ":")
    )


def _write_state(folder: Path, version: int, store: str) -> None:
    if store == "delta":
        put(folder / f"{version}.delta", f"delta {version}")
    elif store == "changelog":
        put(folder / f"{version}.changelog", f"changes {version}")
    elif store == "zip":
        _write_zip(folder, f"{version}.zip", version)
    else:
        put(folder / f"{version}_0a-{version}.changelog", f"changes {version}")
        put(folder / f"{version}_0a-{version}.changelog.crc", "sum")
        if version % 4 == 0:
            _write_zip(folder, f"{version}_0a-{version}.zip", version)


def _write_zip(folder: Path, name: str, version: int) -> None:
    """Write a zip that needs its own SST file and the one of the version before."""
    needed = [f"{n:06}-sst.sst" for n in (version - 1, version) if n]
    for sst in needed:
        put(folder / "SSTs" / sst, f"rows {sst}")
    about = {"sstFiles": [{"localFileName": sst, "dfsSstFileName": sst} for sst in needed]}
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps(about)}")
