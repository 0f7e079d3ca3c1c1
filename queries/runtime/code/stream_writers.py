"""Record the settings that users' code makes on a DataStreamWriter until the query is started.

Spark's own writer, in the JVM, cannot be queried, so each relevant method is recorded when it is
called.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from queries.domain.definitions.spec import TRIGGERS
from queries.runtime.failures.error_capture import ExitInUsersCode

CHECKPOINT = "checkpointlocation"  # option names are case-insensitive


class Callbacks:
    """The calls of one run's foreachBatch function, which may outlast Spark's thread."""

    def __init__(self, returned: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self.returned = returned  # called after each call
        self.open = 0  # calls that have not returned yet

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls counted, raising only subclasses of `Exception`."""

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            with self._lock:
                self.open += 1
            try:
                return function(*arguments)
            except Exception:
                raise
            except BaseException as error:
                raise ExitInUsersCode.of(error) from error
            finally:
                with self._lock:
                    self.open -= 1
                self.returned()

        return call


@dataclass(slots=True)
class WriterSettings:
    """The settings made on one writer."""

    name: str = ""
    format: str = ""
    mode: str = "append"
    checkpoint: str = ""
    trigger: dict[str, Any] = field(default_factory=dict)  # in the form of a definition
    callbacks: Callbacks = field(default_factory=Callbacks)


def settings_of(writer: Any) -> WriterSettings:
    """Return a writer's settings so far."""
    noted = writer.__dict__.get("_headgate")
    if noted is None:
        noted = writer._headgate = WriterSettings()
    settings: WriterSettings = noted
    return settings


def record_settings(writer_class: Any, *, when: Callable[[], bool] = lambda: True) -> None:
    """Make a writer's methods record their arguments while `when` is true in their thread."""

    def noting(name: str) -> Callable[..., Any]:
        method, take = getattr(writer_class, name), _NOTED[name]

        @functools.wraps(method)
        def note(self: Any, *args: Any, **named: Any) -> Any:
            result = method(self, *args, **named)
            if when():
                take(settings_of(self), *args, **named)
            return result

        return note

    for name in _NOTED:
        setattr(writer_class, name, noting(name))


# --- recorded settings ------------------------------------------------------------------


def _option(settings: WriterSettings, key: str, value: Any) -> None:
    if str(key).lower() == CHECKPOINT:
        settings.checkpoint = "" if value is None else str(value)


def _options(settings: WriterSettings, **options: Any) -> None:
    for key, value in options.items():
        _option(settings, key, value)


def _name(settings: WriterSettings, queryName: str) -> None:
    settings.name = str(queryName)


def _format(settings: WriterSettings, source: str) -> None:
    settings.format = str(source).lower()


def _mode(settings: WriterSettings, outputMode: str) -> None:
    settings.mode = str(outputMode).lower()


def _row(settings: WriterSettings, f: Any) -> None:
    settings.format = "foreach"


def _trigger(settings: WriterSettings, **arguments: Any) -> None:
    settings.trigger = {}
    for kind, model in TRIGGERS.items():
        if (value := arguments.get(model.spark)) is not None:
            settings.trigger = {"kind": str(kind)}
            if "interval" in model.model_fields:
                settings.trigger["interval"] = str(value)


_NOTED: dict[str, Callable[..., None]] = {
    "option": _option,
    "options": _options,
    "queryName": _name,
    "format": _format,
    "outputMode": _mode,
    "trigger": _trigger,
    "foreach": _row,
}
