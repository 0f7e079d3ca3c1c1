"""Slow remote calls inside a Spark stream: many at once, in order within a key.

    from headgate_async import map_async
    out = map_async(df, enrich, key="tail_number", schema="…", in_flight="auto")

Requires only the standard library, PyArrow and PySpark. See the README in this folder.
"""

from headgate_async.calls import AsyncMapError, BadArgument, BadResult, CallStuck, CallTimedOut
from headgate_async.mapping import map_async
from headgate_async.rows import Row, identity_of

__all__ = [
    "AsyncMapError",
    "BadArgument",
    "BadResult",
    "CallStuck",
    "CallTimedOut",
    "Row",
    "identity_of",
    "map_async",
]
