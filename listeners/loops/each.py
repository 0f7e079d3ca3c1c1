"""Isolate loop elements: an error in one never stops the others.

A loop over drivers, queries, sources or rows skips an element that raises an error: the cause is
logged once, not in every iteration, and counted, so that the system's health can show it. This
module uses only the standard library, because the driver's loops use it too.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

#: Seconds after which a persistent cause is logged again, with its count.
LOGGED_AGAIN_S = 600.0
#: Elements and causes remembered; the oldest are forgotten first.
_REMEMBERED = 1_000
_CAUSE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class SkippedElement:
    """An element that a loop skips."""

    loop: str  # "gaps"
    about: str  # the element: "driver 7"; "" for the loop itself
    cause: str  # the error's type and the first line of its message, masked
    times: int  # consecutive


#: Called when an element is skipped, and when it is no longer skipped (`times` is 0).
Note = Callable[[SkippedElement], None]


class LoopErrors:
    """The elements that a loop in one process skips."""

    def __init__(
        self,
        loop: str,
        logger: logging.Logger,
        *,
        mask: Callable[[str], str] = str,
        through: tuple[type[Exception], ...] = (),
        on_error: Note | None = None,
        over: Note | None = None,
        moot: Callable[[Exception], bool] = lambda _: False,
    ) -> None:
        """`moot` returns whether an error only results from an end that is reported elsewhere."""
        self._loop = loop
        self._logger = logger
        self._mask = mask
        self._through = through  # errors that end the whole loop
        self._on_error = on_error
        self._over = over
        self._moot = moot
        self._guard = threading.Lock()
        self._troubles: OrderedDict[str, SkippedElement] = OrderedDict()
        self._logged: OrderedDict[str, float] = OrderedDict()  # cause -> monotonic

    @contextmanager
    def isolate_errors(self, about: str = "") -> Iterator[None]:
        """Run the block for one element; an `Exception` ends only this block."""
        try:
            yield
        except self._through:
            raise
        except Exception as error:
            if self._moot(error):
                self._logger.info("%s: %s ended: %s", self._loop, about, type(error).__name__)
            else:
                self.record_error(about, error)
        else:
            self._end(about)

    def record_error(self, about: str, error: Exception) -> SkippedElement:
        """Log and count an error in one element; return its `SkippedElement`."""
        skipped_element, is_news = self._count(about, error)
        if is_news:
            self._logger.error(
                "%s: skipped %s, %s in a row: %s",
                self._loop,
                about or "it",
                "once" if skipped_element.times == 1 else f"{skipped_element.times:,} times",
                skipped_element.cause,
                exc_info=error if self._mask is str else None,  # a traceback cannot be masked
            )
        if self._on_error is not None:
            self._on_error(skipped_element)
        return skipped_element

    def now(self) -> tuple[SkippedElement, ...]:
        """Return the elements that are currently skipped."""
        with self._guard:
            return tuple(self._troubles.values())

    def _count(self, about: str, error: Exception) -> tuple[SkippedElement, bool]:
        """Count the error; return its `SkippedElement`, and whether to log it."""
        text = self._mask(str(error)).strip().partition("\n")[0]
        cause = f"{type(error).__name__}: {text}"[:_CAUSE_CHARACTERS].rstrip(": ")
        error_key = _key_of(error)
        with self._guard:
            before = self._troubles.pop(about, None)
            skipped_element = SkippedElement(
                self._loop, about, cause, before.times + 1 if before else 1
            )
            self._troubles[about] = skipped_element
            now = time.monotonic()
            logged = self._logged.get(error_key)
            is_news = logged is None or now - logged >= LOGGED_AGAIN_S
            if is_news:
                self._logged[error_key] = now
            _forget_oldest(self._troubles)
            _forget_oldest(self._logged)
        return skipped_element, is_news

    def _end(self, about: str) -> None:
        if about not in self._troubles:  # the usual case
            return
        with self._guard:
            ended = self._troubles.pop(about, None)
            if not self._troubles:
                self._logged.clear()  # the same cause is logged when it comes back
        if ended is not None:
            self._logger.info("%s: %s works again", self._loop, about or "it")
            if self._over is not None:
                self._over(replace(ended, times=0))


def _forget_oldest(entries: OrderedDict[str, Any]) -> None:
    while len(entries) > _REMEMBERED:
        entries.popitem(last=False)


def _key_of(error: Exception) -> str:
    """Return the key that distinguishes causes: the error's type, and the line that raised it."""
    line = error.__traceback__
    while line is not None and line.tb_next is not None:
        line = line.tb_next
    at = f"{line.tb_frame.f_code.co_filename}:{line.tb_lineno}" if line is not None else ""
    return f"{type(error).__name__} {at}"
