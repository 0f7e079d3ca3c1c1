"""From where the request that is being served comes: address, browser, and the token it used.

Services take who acts and when as arguments. This is for the audit log and the limits alone, which
every verb would otherwise have to hand through. A command or a task has no asker.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Asker:
    """The other end of a request."""

    address: str = ""
    browser: str = ""  # its User-Agent
    token: str = ""  # its name; "": a signed-in person
    token_id: str = ""
    bulk: bool = False  # one of many that one click, or one deploy, asked for


_asker: ContextVar[Asker | None] = ContextVar("asker", default=None)


def asker() -> Asker | None:
    """Return who asks; None where no request is being served."""
    return _asker.get()


@contextmanager
def asked_by(one: Asker) -> Iterator[None]:
    """Let `one` be who asks, for as long as a request is served."""
    before = _asker.get()
    _asker.set(one)
    try:
        yield
    finally:
        _asker.set(before)


@contextmanager
def in_bulk() -> Iterator[None]:
    """Let what is asked for inside count as part of one bulk action."""
    with asked_by(replace(_asker.get() or Asker(), bulk=True)):
        yield


def note_token(token: Any) -> None:
    """Note the access token by which the request being served was let in."""
    here = _asker.get()
    if here is not None:
        _asker.set(replace(here, token=token.name, token_id=str(token.uuid)))
