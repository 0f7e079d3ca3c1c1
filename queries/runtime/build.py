"""Build a ready-to-start writer from a definition, in the query's own session.

Every error names the part of the definition that it belongs to ("source 'flights' (json)"). Nothing
here is allowed to start a query or change anything: SQL is parsed first and accepted only if it is
a query, and a user's function that calls `start()` itself is rejected.
"""

import functools
import importlib
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from queries.domain.async_calls import PREFIX as CALLS
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.domain.definitions.spec import (
    QUERY,
    PythonQuery,
    Sink,
    Source,
    SqlQuery,
    Table,
    Trigger,
)
from queries.domain.tables.places import ICEBERG
from queries.domain.validation.tables import TABLE, table_of
from queries.runtime.allowed_paths import (
    OutsideRoots,
    QueryOnly,
    require_options,
    require_plan,
    require_query,
    require_table,
    require_text,
)
from queries.runtime.code.stream_writers import (
    Callbacks,
    WriterSettings,
    record_settings,
    settings_of,
)
from queries.runtime.failures.error_capture import ExitInUsersCode, StepFailed
from queries.secret_references import ReferenceMissing, References

CONFIGURATION = "HEADGATE_CONFIGURATION"
#: Maximum characters of a value shown in a sentence.
SHOWN_LIMIT = 200
USER_CODE = "HEADGATE_USER_CODE"
_TABLE = "_headgate_table"  # the attribute of a writer that names its Iceberg table

_building = threading.local()


class NotAWriter(Exception):
    """The function returned neither a DataStreamWriter nor a streaming DataFrame."""


class StartsItself(Exception):
    """The function starts a query itself; it must return an unstarted DataStreamWriter instead."""


class CallsNeedBatches(Exception):
    """Calls by `map_async` need micro-batches, and the definition's trigger does not create any."""


def writer(
    session: Any,
    raw: dict[str, Any],
    *,
    name: str,
    checkpoint: str,
    references: References,
    roots: AllowedPaths | None = None,
    callbacks: Callbacks | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Any:
    """Return a definition's DataStreamWriter, complete except for `start()`.

    If given, `callbacks` counts the calls of its foreachBatch function, and `roots` limits where
    the query reads and writes. Settings in its code that have no effect are passed to `warn`, one
    sentence each. Raises `StepFailed`, with the name of the failed part.
    """
    spec = QUERY.validate_python(raw)
    _building.callbacks = callbacks
    if isinstance(spec, SqlQuery):
        built = _to_sink(
            _sql_frame(session, spec, references, roots), _sink(spec), references, roots
        )
    else:
        built = _from_function(session, spec, references, roots)
        _refuse_calls_without_batches(built._df, spec.trigger)
        for sentence in overridden(settings_of(built), name, checkpoint, spec.trigger):
            warn(sentence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated, as the author knows
        return (
            built.queryName(name)
            .option("checkpointLocation", checkpoint)
            .trigger(**spec.trigger.arguments)
        )


def start(writer: Any) -> Any:
    """Start the writer of a definition, and return the query.

    Spark creates an Iceberg table that does not exist, with the columns of the query.
    """
    named = getattr(writer, _TABLE, "")
    return writer.toTable(named) if named else writer.start()


def rows(
    session: Any, raw: dict[str, Any], *, references: References, roots: AllowedPaths | None = None
) -> tuple[Any, Any]:
    """Return a definition's streaming DataFrame, and its writer if it creates one itself.

    Used to inspect a definition without its sink. Raises `StepFailed`, with the name of the failed
    part.
    """
    spec = QUERY.validate_python(raw)
    if isinstance(spec, SqlQuery):
        return _sql_frame(session, spec, references, roots), None
    result = _called(session, spec, references)
    frame, made = (result._df, result) if hasattr(result, "queryName") else (result, None)
    _refuse_calls_without_batches(frame, spec.trigger)
    return frame, made


def static_table(session: Any, raw: dict[str, Any], references: References) -> Any:
    """Return the DataFrame for one static table of a definition, from its JSON form."""
    return _table(session, Table.model_validate(raw), references)


def session_conf(raw: dict[str, Any], references: References) -> dict[str, str]:
    """Return a definition's session configuration, with references resolved."""
    try:
        return references.resolve_all(raw.get("conf", {}))
    except ReferenceMissing as error:
        raise StepFailed("conf", error, error_class=CONFIGURATION) from error


def views(raw: dict[str, Any]) -> set[str]:
    """Return the names of a definition's temporary views."""
    parts = [*raw.get("sources", ()), *raw.get("tables", ())]
    return {part["name"] for part in parts}


def refuse_starts_while_building(data_stream_writer: type) -> None:
    """Make `start` and `toTable` raise in a building thread; elsewhere they work as usual."""
    for method in ("start", "toTable"):
        setattr(data_stream_writer, method, _guarded(getattr(data_stream_writer, method), method))


def count_callbacks(data_stream_writer: type) -> None:
    """Make `foreachBatch` count its function's calls, in threads that are building a writer."""
    original: Any = data_stream_writer.foreachBatch  # type: ignore[attr-defined]

    @functools.wraps(original)
    def counting(self: Any, func: Any) -> Any:
        callbacks: Callbacks | None = getattr(_building, "callbacks", None)
        return original(self, func if callbacks is None else callbacks.counted(func))

    data_stream_writer.foreachBatch = counting  # type: ignore[attr-defined]


def note_while_building(data_stream_writer: type) -> None:
    """Record the settings that a definition's function makes on its writer."""
    record_settings(data_stream_writer, when=lambda: getattr(_building, "active", False))


def overridden(settings: WriterSettings, name: str, checkpoint: str, trigger: Trigger) -> list[str]:
    """Return a sentence for each setting in the code's writer that is overridden."""
    used = trigger.model_dump(mode="json")
    pairs = (
        ("queryName", settings.name, name, "the query's name"),
        ("checkpointLocation", settings.checkpoint, checkpoint, "the query's checkpoint"),
        ("trigger", settings.trigger, used, "the definition's trigger"),
    )
    return [
        f"The code sets {what} {_shown(value_in_code)}; {_shown(has)} is used instead, {origin}."
        for what, value_in_code, has, origin in pairs
        if value_in_code and value_in_code != has and f"file://{value_in_code}" != has
    ]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = " ".join(str(part).replace("_", " ") for part in value.values())
    return str(value)[:SHOWN_LIMIT]


# --- sql ------------------------------------------------------------------------------


def _sql_frame(
    session: Any, spec: SqlQuery, references: References, roots: AllowedPaths | None
) -> Any:
    for source in spec.sources:
        with _step(f"source {source.name!r} ({source.format})"):
            require_options(roots, source.format, source.options)
            require_table(roots, session, source.format, source.options)
            _stream(session, source, references).createOrReplaceTempView(source.name)
    for table in spec.tables:
        with _step(f"table {table.name!r} ({table.format})"):
            require_options(roots, table.format, table.options)
            require_table(roots, session, table.format, table.options)
            _table(session, table, references).createOrReplaceTempView(table.name)
    with _step("sql"):
        require_query(session, spec.sql)
        require_text(roots, session, spec.sql)
        frame = session.sql(spec.sql, args=spec.params or None)
        require_plan(roots, frame)
        if not frame.isStreaming:
            names = ", ".join(source.name for source in spec.sources)
            raise QueryOnly(f"the SQL does not read any of the streaming sources: {names}")
        return frame


def _stream(session: Any, source: Source, references: References) -> Any:
    frame = _read(session.readStream, source, references)
    if source.watermark is not None:
        frame = frame.withWatermark(source.watermark.column, source.watermark.delay)
    return frame


def _table(session: Any, table: Table, references: References) -> Any:
    return _read(session.read, table, references)


def _read(reader: Any, part: Source | Table, references: References) -> Any:
    """Return a part's frame: of an Iceberg table by its name, of anything else by its options."""
    options, named = _named(part.format, references.resolve_all(part.options))
    reader = reader.format(part.format).options(**options)
    if part.ddl_schema:
        reader = reader.schema(part.ddl_schema)
    return reader.table(named) if named else reader.load()


def _named(name: str, options: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the options without the name of an Iceberg table, and that name."""
    if name != ICEBERG:
        return options, ""
    rest = {key: value for key, value in options.items() if key.lower() != TABLE}
    return rest, table_of(options)


# --- python ---------------------------------------------------------------------------


def _from_function(
    session: Any, spec: PythonQuery, references: References, roots: AllowedPaths | None
) -> Any:
    result = _called(session, spec, references)
    if hasattr(result, "queryName"):
        return result
    return _to_sink(result, _sink(spec), references, roots)


def _called(session: Any, spec: PythonQuery, references: References) -> Any:
    """Call the function and return its result: a writer, or a streaming DataFrame."""
    with _step(f"function {spec.function!r}", error_class=USER_CODE), _no_starts():
        module, _, name = spec.function.partition(":")
        function = getattr(importlib.import_module(module), name)
        result = function(session, references.resolve_in(spec.params))
    writes = hasattr(result, "queryName") and hasattr(result, "start")
    if writes or getattr(result, "isStreaming", False):
        return result
    static = "a DataFrame that is not streaming" if hasattr(result, "isStreaming") else None
    got = static or type(result).__name__
    error = NotAWriter(
        f"{spec.function} returned {got}; "
        "return a DataStreamWriter, or a streaming DataFrame for the definition's sink"
    )
    raise StepFailed(f"function {spec.function!r}", error, error_class=CONFIGURATION)


@contextmanager
def _no_starts() -> Iterator[None]:
    _building.active = True
    try:
        yield
    finally:
        _building.active = False


def _guarded(method: Any, name: str) -> Any:
    def guard(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_building, "active", False):
            raise StartsItself(
                f"the function calls {name}() itself; return the DataStreamWriter instead, and "
                "Headgate sets the checkpoint, name and trigger and starts it"
            )
        return method(self, *args, **kwargs)

    return guard


# --- sink, trigger --------------------------------------------------------------------


def _refuse_calls_without_batches(frame: Any, trigger: Trigger) -> None:
    """Raise if `map_async` would run under a trigger without micro-batches.

    Spark does not accept the operator of `map_async` in continuous processing, which allows only
    projections and filters, or in real-time mode, whose allowlist does not contain it. Even with
    that check switched off, rows are output only at the end of the batch.
    """
    if not trigger.holds:
        return
    # The plan contains the name under which the operator's figures are collected.
    if CALLS in frame._jdf.queryExecution().analyzed().toString():
        kind = trigger.kind.replace("_", "-")
        error = CallsNeedBatches(
            f"map_async is not supported with the {kind} trigger: rows wait for their calls "
            "within a micro-batch. Use processing time; with an interval of 0 seconds, each "
            "batch immediately follows the previous one."
        )
        raise StepFailed("trigger", error, error_class=CONFIGURATION)


def _sink(spec: SqlQuery | PythonQuery) -> Sink:
    if spec.sink is None:
        error = ValueError("the definition has no sink for the rows")
        raise StepFailed("sink", error, error_class=CONFIGURATION)
    return spec.sink


def _to_sink(frame: Any, sink: Sink, references: References, roots: AllowedPaths | None) -> Any:
    with _step(f"sink ({sink.format})"):
        require_options(roots, sink.format, sink.options)
        require_table(roots, frame.sparkSession, sink.format, sink.options)
        options, named = _named(sink.format, references.resolve_all(sink.options))
        built = frame.writeStream.format(sink.format).outputMode(sink.output_mode)
        built = built.options(**options)
        setattr(built, _TABLE, named)  # PySpark's methods return the same writer
        return built.partitionBy(*sink.partition_by) if sink.partition_by else built


@contextmanager
def _step(name: str, *, error_class: str = "") -> Iterator[None]:
    try:
        yield
    except StepFailed:
        raise
    except (ReferenceMissing, QueryOnly, StartsItself, OutsideRoots) as error:
        raise StepFailed(name, error, error_class=CONFIGURATION) from error
    except Exception as error:
        raise StepFailed(name, error, error_class=error_class) from error
    except BaseException as error:  # sys.exit() in users' code must not end our threads
        left = ExitInUsersCode.of(error)
        raise StepFailed(name, left, error_class=error_class) from error
