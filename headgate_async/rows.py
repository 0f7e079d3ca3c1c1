"""Rows between Arrow and the function, sorted after a shuffle in memory or on disk.

Spark refuses to sort a stream, even within partitions. After a shuffle, a task's rows come from
several other tasks, so all rows must have arrived before the first call can be made. Up to `rows`
of them are sorted in memory; more are written to sorted files in a temporary folder and merged from
there.

Both directions work column by column; if possible, the work for each row is done in C.
"""

import hashlib
import heapq
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc

from headgate_async.calls import BadArgument, BadResult

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


#: If these columns are present, they identify a row by its record in the log.
KAFKA = ("topic", "partition", "offset")

_EPOCH = {True: datetime(1970, 1, 1, tzinfo=UTC), False: datetime(1970, 1, 1)}  # noqa: DTZ001


class Row(tuple[Any, ...]):
    """An input row, accessed by `row.name`, `row["name"]` or `row[0]`; has a `row.identity`.

    The subclass made for a schema has the columns' names in `_fields`.
    """

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _places: dict[str, int] = {}
    _named_by: tuple[int, ...] = ()

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, str):
            return tuple.__getitem__(self, self._places[name])
        return tuple.__getitem__(self, name)

    @property
    def identity(self) -> str:
        """Return an identity of this row that is the same in each replay, for idempotent writes.

        For rows from Kafka, it consists of topic, partition and offset; otherwise, it is a hash of
        all values, which two equal rows share.
        """
        return identity_of(self)

    def asDict(self) -> dict[str, Any]:
        """Return the values as a dict by column name."""
        return dict(zip(self._fields, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def identity_of(row: Row) -> str:
    """Return a row's identity, even if the row has a column named `identity`."""
    if row._named_by:
        return ":".join(str(tuple.__getitem__(row, at)) for at in row._named_by)
    text = repr(tuple(row)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def row_class(names: Sequence[str], identity: Sequence[str] | None = None) -> type[Row]:
    """Return the class for rows with these columns; the columns in `identity` identify them.

    With None, Kafka's columns identify a row if all are present, otherwise a hash does.
    """
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        raise BadArgument(f"two columns are named {twice[0]!r}: rename one before map_async")
    places = {name: at for at, name in enumerate(names)}
    if identity is None:
        identity = KAFKA if all(name in places for name in KAFKA) else ()
    reserved_names = {"asDict", "_fields", "_places", "_named_by"}
    read = {
        name: property(itemgetter(at)) for name, at in places.items() if name not in reserved_names
    }
    namespace: dict[str, Any] = {
        "__slots__": (),
        **{name: reader for name, reader in read.items() if not name.startswith("__")},
        "_fields": tuple(names),
        "_places": places,
        "_named_by": tuple(places[name] for name in identity),
    }
    return type("Row", (Row,), namespace)


def rows_of(
    batch: pa.RecordBatch, kind: type[Row], key: Sequence[int] = ()
) -> tuple[list[Row], list[Any]]:
    """Return the rows of an Arrow batch and their keys; `key` contains the key columns' positions.

    Without key columns, the keys are None; with several, they are tuples. Timestamps with a zone
    become aware UTC datetimes.
    """
    if not batch.num_columns:
        return [kind() for _ in range(batch.num_rows)], [None] * batch.num_rows
    columns = [_values(column) for column in batch.columns]
    rows = list(map(partial(tuple.__new__, kind), zip(*columns, strict=True)))
    if len(key) == 1:
        return rows, columns[key[0]]
    if key:
        return rows, list(zip(*(columns[at] for at in key), strict=True))
    return rows, [None] * len(rows)


def _values(column: pa.Array) -> list[Any]:
    if not pa.types.is_timestamp(column.type) or column.type.unit != "us":
        return column.to_pylist()  # type: ignore[no-any-return]
    # PyArrow's own conversion takes about 12 µs per value with a zone, because it looks up the zone
    # for each.
    epoch, after = _EPOCH[column.type.tz is not None], timedelta
    whole = column.cast(pa.int64()).to_pylist()
    return [None if value is None else epoch + after(0, 0, value) for value in whole]


class Shape:
    """Converts the function's results to tuples of the schema's columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._name_set = set(names)

    def tuples(self, result: Any) -> list[tuple[Any, ...]]:
        """Return a result's rows: none for None, several for a list, otherwise one.

        A row is a dict by column name (a missing name means null), a tuple in the schema's order,
        or a Row, namedtuple or PySpark Row, whose values are assigned by name.
        """
        if result is None:
            return []
        if isinstance(result, list):
            return [self.row_of(row) for row in result]
        return [self.row_of(result)]

    def row_of(self, result: Any) -> tuple[Any, ...]:
        """Return one result row as a tuple in the order of the schema's columns."""
        if type(result) is tuple:
            if len(result) != len(self.names):
                raise BadResult(
                    f"the function returned a tuple of {len(result)} values; the schema has "
                    f"{len(self.names)} columns: {', '.join(self.names)}"
                )
            return result
        if isinstance(result, dict):
            return self._by_name(result)
        names = getattr(result, "_fields", None) or getattr(result, "__fields__", None)
        if isinstance(result, tuple) and names:
            return self._by_name(dict(zip(names, result, strict=True)))
        raise BadResult(
            f"the function returned {type(result).__name__}; return a dict or a tuple of the "
            f"schema's columns ({', '.join(self.names)}), a list of such rows, or None for no row"
        )

    def _by_name(self, values: dict[str, Any]) -> tuple[Any, ...]:
        values_in_order = tuple(map(values.get, self.names))
        if len(values) > len(values_in_order) or not self._name_set.issuperset(values):
            unknown = sorted(map(str, set(values) - self._name_set))
            raise BadResult(
                f"the function returned {unknown[0]!r}, which the schema does not have; it has "
                f"{', '.join(self.names)}"
            )
        return values_in_order


def columns_of(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> list[pa.Array]:
    """Return tuples as Arrow columns; if a value does not fit, the error names its column."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(schema)
    return [_column(field, values) for field, values in zip(schema, columns, strict=True)]


def _column(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError,
            TypeError, ValueError) as error:  # fmt: skip
        raise BadResult(f"column {field.name!r} is {field.type}: {error}") from error


def as_json(row: Row) -> str:
    """Return a row's values by name as JSON, with bytes as hexadecimal text."""
    return json.dumps(row.asDict(), default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)
