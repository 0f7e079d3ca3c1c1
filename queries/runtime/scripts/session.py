"""Find the settings that a program requests for its Spark session but that it does not get.

`getOrCreate` returns the driver's session, as it does in any process that has one. Settings that
the program requests but does not get are reported, never silently ignored.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

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
        requested = dict(self._options)
        session = original(self)
        for line in missed(requested, session):
            note(line)
        return session

    @wraps(original_context.__func__)
    def context_get_or_create(cls: Any, conf: Any = None) -> Any:
        context = original_context(conf)
        session = SparkSession._instantiatedSession
        if conf is not None and session is not None:
            ours = dict(SparkConf().getAll())  # initial values of each setting in this process
            requested = {name: value for name, value in conf.getAll() if ours.get(name) != value}
            for line in missed(requested, session):
                note(line)
        return context

    def stop(self: Any) -> None:
        stop_queries()

    SparkSession.Builder.getOrCreate = get_or_create
    SparkContext.getOrCreate = classmethod(context_get_or_create)
    SparkSession.stop = stop
    SparkContext.stop = stop


def missed(requested: dict[str, Any], session: Any) -> list[str]:
    """Return a sentence for each requested setting whose actual value is different."""
    context = session.sparkContext.getConf()
    lines = []
    for name, value in sorted(requested.items()):
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
