"""Every start that a program makes by a DataStreamWriter goes through the driver."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from queries.runtime.code.said import note_what_is_said, said_to


def install(writer_class: Any, begin: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Have a writer's methods note what they are told, and its starts go through `begin`.

    `begin(writer, start)` calls `start()` and returns the query that it returns.
    """
    note_what_is_said(writer_class)
    writer_class.foreachBatch = _counted(writer_class.foreachBatch)
    for name in ("start", "toTable"):
        setattr(writer_class, name, _met(getattr(writer_class, name), begin))


def _counted(method: Any) -> Any:
    """Return `foreachBatch`, with the calls of its function counted."""

    @wraps(method)
    def count(self: Any, func: Any) -> Any:
        said_to(self).format = "foreachbatch"
        return method(self, said_to(self).callbacks.counted(func))

    return count


def _met(method: Any, begin: Callable[[Any, Callable[[], Any]], Any]) -> Any:
    """Return the method with its arguments said to the writer first, then started by `begin`."""

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
        place = path if path is not None else table
        return begin(self, lambda: method(self) if place is None else method(self, place))

    return start
