"""Sort a task's rows after a shuffle: in Arrow, and on disk if they do not fit into memory.

Spark refuses to sort a stream, even within partitions. After a shuffle, a task's rows come from
several other tasks, so all rows must have arrived before the first call can be made. Up to `rows`
of them are sorted in memory; more are written to sorted files in a temporary folder and merged from
there.
"""

import heapq
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc

#: Rows per file that are in memory while files are merged.
PART = 1024


def arranged(
    batches: Iterator[pa.RecordBatch], by: tuple[str, ...], *, rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the batches' rows ordered by columns, nulls last, holding about `rows` rows at most."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    with tempfile.TemporaryDirectory(prefix="headgate-async-") as folder:
        files: list[Path] = []
        for batch in batches:
            waiting.append(batch)
            count += batch.num_rows
            if count >= rows:
                files.append(_write(_sorted(waiting, by), Path(folder) / f"{len(files)}.arrow"))
                waiting, count = [], 0
        if not files:
            if waiting:
                yield from _sorted(waiting, by).to_batches(max_chunksize=PART)
            return
        if waiting:
            files.append(_write(_sorted(waiting, by), Path(folder) / f"{len(files)}.arrow"))
        del waiting
        yield from _merged(files, by)


def _sorted(batches: list[pa.RecordBatch], by: tuple[str, ...]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    order = [(name, "ascending") for name in by]
    places = pa.compute.sort_indices(table, sort_keys=order)
    return table.take(places).combine_chunks()


def _write(table: pa.Table, path: Path) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=PART):
            writer.write_batch(batch)
    return path


def _merged(files: list[Path], by: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Merge sorted files, with one part of each in memory, taking rows run by run."""
    streams = [_rows(path, by, number) for number, path in enumerate(files)]
    run: list[pa.RecordBatch] = []
    count = 0
    for _key, _number, batch, at in heapq.merge(*streams, key=lambda each: each[:2]):
        run.append(batch.slice(at, 1))
        count += 1
        if count == PART:
            yield _joined(run)
            run, count = [], 0
    if run:
        yield _joined(run)


def _joined(run: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(run).combine_chunks().to_batches()[0]


def _rows(
    path: Path, by: tuple[str, ...], number: int
) -> Iterator[tuple[tuple[tuple[bool, Any], ...], int, pa.RecordBatch, int]]:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            columns = [batch.column(name).to_pylist() for name in by]
            for at, values in enumerate(zip(*columns, strict=True)):
                # None sorts after everything else, and is never compared with a value.
                yield tuple((value is None, value) for value in values), number, batch, at
