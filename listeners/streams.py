"""The streams in which events wait for the ingester: one per driver, and a common one.

A driver can write only to its own stream, so that misuse, including a flood, harms only that
driver. The common stream is for drivers that share REDIS_URL's password.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate_ground.tolerant import whole

GROUP = "ingesters"

#: A well-behaved driver pauses at 20,000 entries (`listeners.spark.outbox`).
MOST_ENTRIES = 100_000
#: A stream's maximum Redis memory; 20,000 events of the usual 2 KB take 40 MB.
MOST_BYTES = 256 * 1024 * 1024


def of_driver(common: str, epoch: int) -> str:
    """Return the name of the stream of the driver with this epoch."""
    return f"{common}:{epoch}"


def epoch_of(common: str, name: str) -> int:
    """Return the epoch of a stream's driver; 0 for the common stream."""
    return int(name[len(common) + 1 :] or 0)


def names_of(client: Any, common: str) -> list[str]:
    """Return the names of all streams; the first is the common stream, which may not exist."""
    pattern = re.sub(r"([][*?\\])", r"\\\1", common) + ":[0-9]*"
    names = {name.decode() for name in client.scan_iter(match=pattern, count=1000)}
    ours = {name for name in names if whole(name[len(common) + 1 :]) is not None}
    return [common, *sorted(ours, key=lambda name: epoch_of(common, name))]


def make_groups(client: Any, names: Iterable[str]) -> None:
    """Create the ingesters' consumer group on each stream, and the stream itself if missing.

    The group starts at the stream's beginning, so that no entry is skipped if Redis has lost its
    data.
    """
    with client.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.xgroup_create(name, GROUP, id="0", mkstream=True)
        for answer in pipeline.execute(raise_on_error=False):
            if isinstance(answer, Exception) and "BUSYGROUP" not in str(answer):
                raise answer


@dataclass(frozen=True, slots=True)
class StreamState:
    """The content of one stream, and the ingesters' progress."""

    name: str
    entries: int
    size: int  # bytes of Redis memory
    delivered: bytes | None  # the newest delivered entry; None: there is no group
    pending: int  # entries delivered but not acknowledged

    @property
    def overflow(self) -> str:
        """Return the stream's size if it is above a driver's limit, otherwise ""."""
        if self.entries > MOST_ENTRIES:
            return f"{self.entries:,} entries"
        return f"{self.size // 2**20:,} MB" if self.size > MOST_BYTES else ""


def look(client: Any, names: Sequence[str]) -> list[StreamState]:
    """Return the states of the existing streams, in one round trip."""
    with client.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.xlen(name)
            pipeline.memory_usage(name)
            pipeline.xinfo_groups(name)
        answers = pipeline.execute(raise_on_error=False)
    states = []
    for name, entries, size, groups in zip(
        names, answers[::3], answers[1::3], answers[2::3], strict=True
    ):
        if isinstance(groups, Exception):
            if "no such key" in str(groups):
                continue
            raise groups
        ours: dict[str, Any] = {group["name"]: group for group in groups}.get(GROUP.encode(), {})
        delivered, pending = ours.get("last-delivered-id"), ours.get("pending", 0)
        states.append(StreamState(name, int(entries), int(size or 0), delivered, pending))
    return states


def trim(client: Any, state: StreamState) -> None:
    """Remove acknowledged entries from a stream, and no others.

    The newest entry is retained: it marks how far the group has read.
    """
    if state.delivered is None or state.entries < 2:
        return
    oldest = _oldest_pending(client, state) or state.delivered
    client.xtrim(state.name, minid=min(oldest, state.delivered, key=_order), approximate=False)


def is_through(client: Any, state: StreamState) -> bool:
    """Return whether all entries ever written to a stream are stored and acknowledged."""
    newest: bytes = client.xinfo_stream(state.name)["last-generated-id"]
    return state.delivered == newest and not state.pending


def stored_up_to(client: Any, common: str, epochs: Iterable[int]) -> dict[int, float]:
    """Return the time up to which each epoch's events are stored, in Unix seconds.

    The result includes the common stream (0) and omits epochs without pending entries.
    """
    names = {of_driver(common, epoch): epoch for epoch in epochs} | {common: 0}
    return {
        names[state.name]: _order(_oldest_pending(client, state) or state.delivered)[0] / 1000
        for state in look(client, list(names))
        if not is_through(client, state)
    }


def busy(client: Any, common: str) -> frozenset[int] | None:
    """Return the epochs with delivered but not yet stored entries; 0 is the common stream.

    Returns None if no entry was ever delivered to an ingester.
    """
    states = look(client, names_of(client, common))
    read = [state for state in states if state.delivered is not None]
    unfinished = {
        epoch_of(common, state.name)
        for state in read
        if state.pending and _order(_oldest_pending(client, state)) <= _order(state.delivered)
    }
    return frozenset(unfinished) if read else None


def _oldest_pending(client: Any, state: StreamState) -> bytes | None:
    """Return the oldest unacknowledged entry."""
    entry: bytes | None = client.xpending(state.name, GROUP)["min"] if state.pending else None
    return entry


def _order(entry: bytes | None) -> tuple[int, int]:
    at, _, number = (entry or b"0").partition(b"-")
    return int(at), int(number or 0)
