"""Let one run skip a gap in its sources, no matter how they are built.

This is for a run whose data loss an operator has accepted. For that run only, each source is read
with `failOnDataLoss=false`, in SQL definitions and in users' functions alike; the definition is not
changed, and the next run fails again at a gap.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_accepting = threading.local()


def install(data_stream_reader: type) -> None:
    """Make streams that are loaded in an `accepting` block read past gaps."""
    load = data_stream_reader.load  # type: ignore[attr-defined]

    def over_gaps(self: Any, *args: Any, **options: Any) -> Any:
        if getattr(_accepting, "active", False):
            self.option("failOnDataLoss", "false")  # the last value set is the one that counts
            options.pop("failOnDataLoss", None)
        return load(self, *args, **options)

    data_stream_reader.load = over_gaps  # type: ignore[attr-defined]


@contextmanager
def accepting(active: bool) -> Iterator[None]:
    """Let streams that this thread loads within the block skip gaps."""
    _accepting.active = active
    try:
        yield
    finally:
        _accepting.active = False
