"""Identify the release of our code that a driver runs: the one that started it."""

from functools import cache

from headgate_server import places
from queries.code_roots import digest_of, files_of

#: The code that runs inside a driver, and the formats it exchanges with the control plane.
PARTS = (
    *("queries/runtime", "queries/domain", "listeners/spark", "headgate_ground"),
    "headgate_async",
)


@cache
def release() -> str:
    """Return the digest of this release's driver code, as of the start of this process."""
    roots = tuple(str(places.ROOT / part) for part in PARTS)
    return digest_of(list(files_of(roots)))
