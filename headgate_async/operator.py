"""Check one operator's arguments on the driver, before they are sent to the workers."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from headgate_async.calls import Rules
from headgate_async.errors import BadArgument
from headgate_async.limiter import Auto, Fixed, Limiter

Failure = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
InFlight = int | Literal["auto", "sequential"]

#: A blocking call needs a thread, which costs memory, so there are fewer than coroutines.
MOST_THREADS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a task needs to know about its operator."""

    operator: str  # an ID: the key of what is kept in a Python worker
    enrich: Callable[..., Any]
    setup: Callable[[], Any] | None
    blocking: bool
    with_client: bool  # the function takes the client after the row
    in_flight: InFlight
    cap: int
    rules: Rules
    calls_per_second: float | None  # per task
    key: tuple[str, ...]
    order_by: tuple[str, ...]  # to sort a task's rows by; () takes them in order of arrival
    identity: tuple[str, ...] | None
    hold: int  # rows
    schema: pa.Schema  # what the function returns

    def limiter(self) -> Limiter:
        """Return a new limiter."""
        if self.in_flight == "auto":
            return Auto(self.cap)
        return Fixed(1 if self.in_flight == "sequential" else self.in_flight)


def is_blocking(function: Callable[..., Any]) -> bool:
    """Return whether a function must run in a thread, because it is not a coroutine function."""
    call = getattr(function, "__call__", None)  # noqa: B004 - of an object with a coroutine for it
    return not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call))


def takes_client(function: Callable[..., Any]) -> bool:
    """Return whether a function takes the client after the row."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters) > 1


def matcher(argument: str, named: Failure) -> Callable[[BaseException], bool]:
    """Return a test for errors, from exception classes or from a function that tests them."""
    if isinstance(named, type) and issubclass(named, BaseException):
        named = (named,)
    if isinstance(named, tuple):
        if not all(
            isinstance(error_class, type) and issubclass(error_class, BaseException)
            for error_class in named
        ):
            raise BadArgument(f"{argument}: {named!r} must contain only exception classes")
        classes = named
        return lambda error: isinstance(error, classes)
    if callable(named) and not isinstance(named, type):
        return named
    raise BadArgument(
        f"{argument}: {named!r} is not an exception class, a tuple of them, or a function"
    )


def checked_in_flight(in_flight: Any, *, cap: int | None, blocking: bool) -> tuple[InFlight, int]:
    """Return the requested number of calls in flight, and the cap for it."""
    most = cap if cap is not None else (MOST_THREADS if blocking else 256)
    whole("cap", most)
    if in_flight in ("auto", "sequential"):
        return in_flight, 1 if in_flight == "sequential" else most
    if isinstance(in_flight, bool) or not isinstance(in_flight, int):
        raise BadArgument(
            f"in_flight: {in_flight!r} is neither a whole number, 'auto' nor 'sequential'"
        )
    whole("in_flight", in_flight)
    if cap is not None and in_flight > cap:
        raise BadArgument(f"in_flight: {in_flight} is more than the cap of {cap}")
    return in_flight, in_flight


def whole(argument: str, value: Any, *, least: int = 1) -> int:
    """Return an integer of at least `least`, or raise `BadArgument`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadArgument(f"{argument}: {value!r} must be a whole number of {least} or more")
    return value


def positive(argument: str, value: Any) -> float:
    """Return a number above 0, or raise `BadArgument`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise BadArgument(f"{argument}: {value!r} must be a number above 0")
    return float(value)
