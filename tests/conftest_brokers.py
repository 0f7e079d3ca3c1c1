"""Brokers as a test has them, and queries whose checkpoints have committed something there."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queries.brokers.options import TopicSelection
from queries.brokers.reader import At, BrokerLook, PartitionEnds, Readers, RecordSeen
from queries.domain.kafka.retention import Retention
from queries.models.definitions import Checkpoint, Query
from tests.scenarios.stage import Stage

MakeQuery = Callable[..., Query]

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR_MS = 3_600_000


@dataclass
class Brokers(Readers):
    """Broker sets by their address, each as the test has it: what it says, or silence."""

    said: dict[str, BrokerLook | Exception] = field(default_factory=dict)
    read: list[dict[At, int]] = field(default_factory=list)

    def look(
        self,
        key: Any,
        options: Mapping[str, str],
        wanted: Iterable[TopicSelection],
        *,
        records: Callable[[dict[At, PartitionEnds]], Mapping[At, int]],
        limit_s: float = 0,
    ) -> BrokerLook:
        found = self.said[options["bootstrap.servers"]]
        if isinstance(found, Exception):
            raise found
        self.read.append(dict(records(found.ends)))
        return found

    def close_idle(self, *, idle_s: float = 0) -> None:
        return


def said(
    ends: dict[int, tuple[int, int]],
    *,
    written: datetime | None = None,
    retention: Retention | None = None,
    told: bool = True,
    stable: dict[int, int] | None = None,
) -> BrokerLook:
    """Return what a broker says of the topic "flights"; records were written at `written`.

    `told` says whether it tells how long the topic keeps records. `stable` are the ends of the
    partitions with an open transaction, as a reader of committed records alone is told them.
    """
    at = {
        ("flights", number): PartitionEnds(
            *both, stable=None if stable is None else stable.get(number, both[1])
        )
        for number, both in ends.items()
    }
    records = {
        key: RecordSeen(max(100, one.earliest), written, 100) for key, one in at.items() if written
    }
    kept = {"flights": retention or Retention(ms=HOUR_MS)} if told else {}
    return BrokerLook(tuple(at), at, kept, records)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def make(tmp_path: Path, stage: Stage) -> MakeQuery:
    """Make queries over Kafka whose checkpoints have committed."""

    def query(name: str, server: str = "one:9092", **changes: Any) -> Query:
        committed = changes.pop("committed", {0: 100, 1: 100})
        options = {"kafka.bootstrap.servers": server, "subscribe": "flights"}
        options |= changes.pop("options", {})
        source = {"name": "flights", "format": "kafka", "options": options}
        row = stage.query(name, sources=[source], **changes)
        place = tmp_path / name
        Checkpoint.objects.filter(query=row).update(location=f"file://{place}")
        if committed:
            commit(place, 0, committed)
        return row

    return query


def commit(place: Path, batch: int, offsets: dict[int, int], *, committed: bool = True) -> None:
    """Write a batch into a checkpoint's logs, begun and (unless it failed) committed."""
    for folder in ("offsets", "commits"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    said = ",".join(f'"{number}":{at}' for number, at in offsets.items())
    (place / "offsets" / str(batch)).write_text(
        f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\n{{"flights":{{{said}}}}}'
    )
    if committed:
        (place / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
