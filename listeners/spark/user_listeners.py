"""Attach users' own listeners, and time each of their calls.

They are registered in the standard way and share Spark's queue; slow or failing listeners are
reported with their times and errors, so that users do not have to guess why Spark dropped events.
"""

import importlib
import threading
import time
from collections import deque
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from headgate_ground.wire import ListenerTimes

_REMEMBERED_CALLS = 512  # for the p95


class ListenerRefused(Exception):
    """A user's listener cannot be used; the message contains its name and the reason."""


class TimedListener(StreamingQueryListener):  # type: ignore[misc]
    """A user's listener with a timer around each call; Spark gets the listener's exceptions."""

    def __init__(self, name: str, listener: StreamingQueryListener, *, slow_call_ms: float) -> None:
        self._name = name
        self._listener = listener
        self._slow_call_ms = slow_call_ms
        self._lock = threading.Lock()
        self._calls = 0
        self._errors = 0
        self._last_error = ""
        self._recent: deque[float] = deque(maxlen=_REMEMBERED_CALLS)  # ms
        self._max_ms = 0.0
        self._running: dict[int, float] = {}  # thread -> monotonic start time of its call

    def onQueryStarted(self, event: Any) -> None:
        """Pass on a Started event."""
        self._call("onQueryStarted", event)

    def onQueryProgress(self, event: Any) -> None:
        """Pass on a Progress event."""
        self._call("onQueryProgress", event)

    def onQueryIdle(self, event: Any) -> None:
        """Pass on an Idle event."""
        self._call("onQueryIdle", event)

    def onQueryTerminated(self, event: Any) -> None:
        """Pass on a Terminated event."""
        self._call("onQueryTerminated", event)

    def times(self) -> ListenerTimes:
        """Return the listener's times so far; a running call counts with its current duration."""
        now = time.monotonic()
        with self._lock:
            running = [(now - began) * 1000 for began in self._running.values()]
            costs = sorted([*self._recent, *running])
            max_ms = max([self._max_ms, *running])
            return ListenerTimes(
                name=self._name,
                calls=self._calls,
                errors=self._errors,
                last_error=self._last_error,
                p95_ms=round(costs[int(0.95 * (len(costs) - 1))], 3) if costs else 0.0,
                max_ms=round(max_ms, 3),
                slow=max_ms > self._slow_call_ms,
            )

    def _call(self, name: str, event: Any) -> None:
        thread = threading.get_ident()
        began = time.monotonic()
        with self._lock:
            self._calls += 1
            self._running[thread] = began
        try:
            getattr(self._listener, name)(event)
        except Exception as error:
            with self._lock:
                self._errors += 1
                text = f"{type(error).__name__}: {error}"[:500]
                self._last_error = text.encode(errors="replace").decode()
            raise
        except BaseException as error:
            # sys.exit() would end the thread without an answer, and Spark would wait forever.
            with self._lock:
                self._errors += 1
                self._last_error = f"{error!r} was raised"[:500]
            raise RuntimeError(self._last_error) from error
        finally:
            took_ms = (time.monotonic() - began) * 1000
            with self._lock:
                self._running.pop(thread, None)
                self._recent.append(took_ms)
                self._max_ms = max(self._max_ms, took_ms)


def load(name: str, *, slow_call_ms: float) -> TimedListener:
    """Return a timed instance of the listener class `module:Class`.

    Raises ListenerRefused if the module or class is missing, is not a StreamingQueryListener, or
    cannot be created without arguments.
    """
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise ListenerRefused(f"listener {name!r}: write it as module:Class")
    try:
        made = getattr(importlib.import_module(module_name), class_name)
    except BaseException as error:  # a user's module may raise anything on import
        reason = f"{type(error).__name__}: {error}"
        raise ListenerRefused(f"listener {name} cannot be imported: {reason}") from error
    if not (isinstance(made, type) and issubclass(made, StreamingQueryListener)):
        raise ListenerRefused(
            f"listener {name} is not a StreamingQueryListener: derive the class from "
            "pyspark.sql.streaming.StreamingQueryListener"
        )
    try:
        listener = made()
    except BaseException as error:  # a user's constructor may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ListenerRefused(
            f"listener {name} cannot be created without arguments: {reason}"
        ) from (error)
    return TimedListener(name, listener, slow_call_ms=slow_call_ms)
