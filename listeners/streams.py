"""The streams in which events wait for the ingester: one for each driver, and a common one.

A driver may write to its own stream only, so that what it does there, a flood included, is its
own loss. The common one is that of drivers which share REDIS_URL's password.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

GROUP = "ingesters"

#: A driver that keeps the rules holds back at 20,000 entries (`listeners.spark.settings`).
MOST_ENTRIES = 100_000
#: What a stream may take of Redis' memory; 20,000 events of the usual 2 KB take 40 MB.
MOST_BYTES = 256 * 1024 * 1024


def of_driver(common: str, epoch: int) -> str:
    """Return the name of the stream of the driver with this epoch."""
    return f"{common}:{epoch}"


def epoch_of(common: str, name: str) -> int:
    """Return the epoch of the driver whose stream this is, 0 for the common one."""
    return int(name[len(common) + 1 :] or 0)


def found(client: Any, common: str) -> list[str]:
    """Return the names of all streams, the common one first, whether it is there or not."""
    pattern = re.sub(r"([][*?\\])", r"\\\1", common) + ":[0-9]*"
    names = {name.decode() for name in client.scan_iter(match=pattern, count=1000)}
    ours = {name for name in names if name[len(common) + 1 :].isdigit()}
    return [common, *sorted(ours, key=lambda name: epoch_of(common, name))]


def make_groups(client: Any, names: Iterable[str]) -> None:
    """Make the ingesters' group of each stream, and the stream with it.

    From the stream's beginning: where Redis has lost its data nothing is skipped.
    """
    with client.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.xgroup_create(name, GROUP, id="0", mkstream=True)
        for answer in pipeline.execute(raise_on_error=False):
            if isinstance(answer, Exception) and "BUSYGROUP" not in str(answer):
                raise answer


@dataclass(frozen=True, slots=True)
class State:
    """What one stream holds, and how far the ingesters are with it."""

    name: str
    entries: int
    size: int  # bytes of Redis' memory
    delivered: bytes | None  # the newest entry that was handed out; None: there is no group
    pending: int  # entries that are handed out and not acknowledged

    @property
    def overflow(self) -> str:
        """Return what it holds, where that is more than a driver may leave there, else ""."""
        if self.entries > MOST_ENTRIES:
            return f"{self.entries:,} entries"
        return f"{self.size // 2**20:,} MB" if self.size > MOST_BYTES else ""


def look(client: Any, names: Sequence[str]) -> list[State]:
    """Return the states of the streams that are there, all asked in one round trip."""
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
        states.append(State(name, int(entries), int(size or 0), delivered, pending))
    return states


def trim(client: Any, state: State) -> None:
    """Remove from a stream what has been acknowledged, and nothing else.

    The newest entry stays: it marks how far the group has read.
    """
    if state.delivered is None or state.entries < 2:
        return
    oldest = _oldest_pending(client, state) or state.delivered
    client.xtrim(state.name, minid=min(oldest, state.delivered, key=_order), approximate=False)


def is_through(client: Any, state: State) -> bool:
    """Return whether everything that was ever written to a stream is stored and acknowledged."""
    newest: bytes = client.xinfo_stream(state.name)["last-generated-id"]
    return state.delivered == newest and not state.pending


def busy(client: Any, common: str) -> frozenset[int] | None:
    """Return the epochs of which not all that was handed out is stored yet; 0: the common stream.

    None where no ingester has been given anything.
    """
    states = look(client, found(client, common))
    read = [state for state in states if state.delivered is not None]
    unfinished = {
        epoch_of(common, state.name)
        for state in read
        if state.pending and _order(_oldest_pending(client, state)) <= _order(state.delivered)
    }
    return frozenset(unfinished) if read else None


def _oldest_pending(client: Any, state: State) -> bytes | None:
    """Return the oldest entry that is not acknowledged."""
    found: bytes | None = client.xpending(state.name, GROUP)["min"] if state.pending else None
    return found


def _order(entry: bytes | None) -> tuple[int, int]:
    at, _, number = (entry or b"0").partition(b"-")
    return int(at), int(number or 0)
