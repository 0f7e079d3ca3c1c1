"""What a program has said to a DataStreamWriter, kept until it starts the query.

Spark's own writer, in the JVM, answers no question about itself; so each method that says
something of interest is noted as it is called.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from queries.runtime.build import Callbacks

CHECKPOINT = "checkpointlocation"  # options know no case


@dataclass(slots=True)
class Said:
    """What one writer was told."""

    name: str = ""
    format: str = ""
    mode: str = "append"
    checkpoint: str = ""
    trigger: dict[str, Any] = field(default_factory=dict)  # as a definition writes it
    callbacks: Callbacks = field(default_factory=Callbacks)


def said_to(writer: Any) -> Said:
    """Return what a writer was told so far."""
    found = writer.__dict__.get("_headgate")
    if found is None:
        found = writer._headgate = Said()
    said: Said = found
    return said


def install(writer_class: Any, begin: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Have a writer's methods note what they are told, and its starts go through `begin`.

    `begin(writer, start)` calls `start()` and returns the query that it returns.
    """
    given = {name: getattr(writer_class, name) for name in _NOTED}

    def noting(name: str) -> Callable[..., Any]:
        method = given[name]

        @wraps(method)
        def note(self: Any, *args: Any, **named: Any) -> Any:
            if name == "foreachBatch" and (args or "func" in named):
                function = args[0] if args else named["func"]
                said_to(self).format = "foreachbatch"
                return method(self, said_to(self).callbacks.counted(function))
            result = method(self, *args, **named)
            _NOTED[name](said_to(self), *args, **named)
            return result

        return note

    for name in _NOTED:
        setattr(writer_class, name, noting(name))
    for name in ("start", "toTable"):
        setattr(writer_class, name, _met(getattr(writer_class, name), begin))


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


# --- what is noted ------------------------------------------------------------------------


def _option(said: Said, key: str, value: Any) -> None:
    if str(key).lower() == CHECKPOINT:
        said.checkpoint = "" if value is None else str(value)


def _options(said: Said, **options: Any) -> None:
    for key, value in options.items():
        _option(said, key, value)


def _name(said: Said, queryName: str) -> None:
    said.name = str(queryName)


def _format(said: Said, source: str) -> None:
    said.format = str(source).lower()


def _mode(said: Said, outputMode: str) -> None:
    said.mode = str(outputMode).lower()


def _row(said: Said, f: Any) -> None:
    said.format = "foreach"


def _trigger(said: Said, **asked: Any) -> None:
    said.trigger = {}
    for argument, kind, interval in _TRIGGERS:
        if (value := asked.get(argument)) is not None:
            said.trigger = {"kind": kind, "interval": str(value)} if interval else {"kind": kind}


_TRIGGERS = (
    ("processingTime", "processing_time", True),
    ("once", "once", False),
    ("continuous", "continuous", True),
    ("availableNow", "available_now", False),
    ("realTime", "real_time", True),
)
_NOTED: dict[str, Callable[..., None]] = {
    "option": _option,
    "options": _options,
    "queryName": _name,
    "format": _format,
    "outputMode": _mode,
    "trigger": _trigger,
    "foreachBatch": lambda *_: None,  # noted where it is called
    "foreach": _row,
}
