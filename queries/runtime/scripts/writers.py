"""Route every start that a program makes with a DataStreamWriter through the driver."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from queries.runtime.code.stream_writers import record_settings, settings_of


def install(writer_class: Any, begin: Callable[[Any, Callable[[], Any]], Any]) -> None:
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
