"""Read context for a failure without ever hiding the failure: skip what cannot be read."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def left_out(read: Callable[[], T], otherwise: U) -> T | U:
    """Return what `read` returns, or `otherwise` if it fails for any reason.

    The failure's cause may also break every attempt to inspect it: out of memory, a full disk, a
    dying JVM. So `read` must be bounded, and no decision may depend on its result alone.
    """
    try:
        return read()
    except Exception:
        return otherwise
