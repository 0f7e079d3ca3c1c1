"""Identify the origin of the current request: address, browser and access token.

Services take the actor and the time as arguments. Only the audit log and the rate limits need the
origin, so it is not passed through every call. Commands and tasks have no asker.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Asker:
    """The client that sent a request."""

    address: str = ""
    browser: str = ""  # its User-Agent
    token: str = ""  # its name; "" for a session
    token_id: str = ""
    bulk: bool = False  # part of a bulk action or a deploy


_asker: ContextVar[Asker | None] = ContextVar("asker", default=None)


def asker() -> Asker | None:
    """Return the current request's asker; None outside a request."""
    return _asker.get()


@contextmanager
def asked_by(one: Asker) -> Iterator[None]:
    """Set `one` as the asker while a request is served."""
    before = _asker.get()
    _asker.set(one)
    try:
        yield
    finally:
        _asker.set(before)


@contextmanager
def in_bulk() -> Iterator[None]:
    """Count operations requested within this context as part of one bulk action."""
    with asked_by(replace(_asker.get() or Asker(), bulk=True)):
        yield


def note_token(token: Any) -> None:
    """Record the access token that authenticated the current request."""
    here = _asker.get()
    if here is not None:
        _asker.set(replace(here, token=token.name, token_id=str(token.uuid)))
