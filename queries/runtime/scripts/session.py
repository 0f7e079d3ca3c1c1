"""What a program asks of its Spark session, and what of that it cannot get in a driver of ours.

`getOrCreate` returns the driver's session, as it does in any process that has one. What the
program asks for and does not get is said, never silent.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

logger = logging.getLogger("headgate.script")

Tell = Callable[[str], None]

#: Where an application's definition has a field for what a program asks of Spark.
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


def install(tell: Tell, stop_queries: Callable[[], None]) -> None:
    """Have each `getOrCreate` say what it cannot give, and `stop` end queries instead of Spark.

    The driver stops Spark itself once the program has ended: it has to see how its queries ended.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    given = SparkSession.Builder.getOrCreate
    given_context = SparkContext.getOrCreate

    @wraps(given)
    def get_or_create(self: Any) -> Any:
        asked = dict(self._options)
        session = given(self)
        for line in missed(asked, session):
            tell(line)
        return session

    @wraps(given_context.__func__)
    def context_get_or_create(cls: Any, conf: Any = None) -> Any:
        context = given_context(conf)
        session = SparkSession._instantiatedSession
        if conf is not None and session is not None:
            ours = dict(SparkConf().getAll())  # what each conf begins with in this process
            asked = {name: value for name, value in conf.getAll() if ours.get(name) != value}
            for line in missed(asked, session):
                tell(line)
        return context

    def stop(self: Any) -> None:
        stop_queries()

    SparkSession.Builder.getOrCreate = get_or_create
    SparkContext.getOrCreate = classmethod(context_get_or_create)
    SparkSession.stop = stop
    SparkContext.stop = stop


def missed(asked: dict[str, Any], session: Any) -> list[str]:
    """Return a sentence for each setting that is asked for and has another value."""
    context = session.sparkContext.getConf()
    lines = []
    for name, value in sorted(asked.items()):
        wanted = _text(value)
        if name == "spark.app.name" or not name.startswith("spark."):
            continue
        if name.startswith("spark.sql.") and not name.startswith("spark.sql.warehouse"):
            has = session.conf.get(name, None)
        else:  # Spark notes it in the session, where it has no effect
            has = context.get(name)
        if has == wanted:
            continue
        field = _FIELDS.get(name, "Spark configuration")
        now = f"{name} is {_short(has)}" if has is not None else f"{name} is not set"
        lines.append(
            f"The script asks for {name}={_short(wanted)} and does not get it: {now}. "
            f"Set it in the application's definition ({field})."
        )
    return lines


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= _VALUE_LIMIT else f"{text[:_VALUE_LIMIT]}…"
