"""Intercept a program's calls to Spark: DataStreamWriter starts, and settings that it does not get.

`getOrCreate` returns the driver's session, as it does in any process that has one. Settings that
the program requests but does not get are reported, never silently ignored.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from queries.runtime.code.stream_writers import record_settings, settings_of

logger = logging.getLogger("headgate.script")

Note = Callable[[str], None]

#: Fields of an application's definition for settings that a program requests from Spark.
_FIELDS = {
    "spark.master": "Spark master",
    "spark.driver.memory": "driver memory",
    "spark.jars": "connectors",
    "spark.jars.packages": "connectors",
    "spark.submit.pyFiles": "py_files",
    "spark.files": "files",
    "spark.scheduler.mode": "scheduler",
}
_VALUE_LIMIT = 120


def install(note: Note, stop_queries: Callable[[], None]) -> None:
    """Make `getOrCreate` report settings it cannot apply, and `stop` end queries instead of Spark.

    The driver itself stops Spark once the program has ended, because it must first see how the
    queries ended.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    original = SparkSession.Builder.getOrCreate
    original_context = SparkContext.getOrCreate

    @wraps(original)
    def get_or_create(self: Any) -> Any:
        settings = dict(self._options)
        session = original(self)
        for line in missed(settings, session):
            note(line)
        return session

    @wraps(original_context.__func__)
    def context_get_or_create(cls: Any, conf: Any = None) -> Any:
        context = original_context(conf)
        session = SparkSession._instantiatedSession
        if conf is not None and session is not None:
            ours = dict(SparkConf().getAll())  # initial values of each setting in this process
            settings = {name: value for name, value in conf.getAll() if ours.get(name) != value}
            for line in missed(settings, session):
                note(line)
        return context

    def stop(self: Any) -> None:
        stop_queries()

    SparkSession.Builder.getOrCreate = get_or_create
    SparkContext.getOrCreate = classmethod(context_get_or_create)
    SparkSession.stop = stop
    SparkContext.stop = stop


def missed(requested_settings: dict[str, Any], session: Any) -> list[str]:
    """Return a sentence for each requested setting whose actual value is different."""
    context = session.sparkContext.getConf()
    lines = []
    for name, value in sorted(requested_settings.items()):
        wanted = _text(value)
        if name == "spark.app.name" or not name.startswith("spark."):
            continue
        if name.startswith("spark.sql.") and not name.startswith("spark.sql.warehouse"):
            has = session.conf.get(name, None)
        else:  # Spark stores it in the session, where it has no effect
            has = context.get(name)
        if has == wanted:
            continue
        field = _FIELDS.get(name, "Spark configuration")
        now = f"{name} is {_short(has)}" if has is not None else f"{name} is not set"
        lines.append(
            f"The script requests {name}={_short(wanted)}, which is not applied: {now}. Set "
            f"{name} in the application's definition ({field})."
        )
    return lines


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= _VALUE_LIMIT else f"{text[:_VALUE_LIMIT]}…"


def install_writers(writer_class: Any, begin: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Make a writer's methods record their arguments, and its starts go through `begin`.

    `begin(writer, start)` calls `start()` and returns the resulting query.
    """
    record_settings(writer_class)
    writer_class.foreachBatch = _counted(writer_class.foreachBatch)
    for name in ("start", "toTable"):
        setattr(writer_class, name, _intercepted(getattr(writer_class, name), begin))


def _counted(method: Any) -> Any:
    """Return a `foreachBatch` that counts its function's calls."""

    @wraps(method)
    def count(self: Any, func: Any) -> Any:
        settings_of(self).format = "foreachbatch"
        return method(self, settings_of(self).callbacks.counted(func))

    return count


def _intercepted(method: Any, begin: Callable[[Any, Callable[[], Any]], Any]) -> Any:
    """Return a method that first sets its arguments on the writer, then calls `begin`."""

    @wraps(method)
    def start(
        self: Any,
        path: Any = None,
        format: Any = None,
        outputMode: Any = None,
        partitionBy: Any = None,
        queryName: Any = None,
        **options: Any,
    ) -> Any:
        table = options.pop("tableName", None)
        self.options(**options)
        for method_name, value in (
            ("outputMode", outputMode),
            ("partitionBy", partitionBy),
            ("format", format),
            ("queryName", queryName),
        ):
            if value is not None:
                getattr(self, method_name)(value)
        target = path if path is not None else table
        return begin(self, lambda: method(self) if target is None else method(self, target))

    return start
