"""A topic that is deleted and recreated loses nothing in silence: refused, or counted."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from queries.domain.errors import NotAllowed
from queries.domain.failures.categories import Category
from queries.domain.states import LossKind, OperationOutcome
from queries.models.checkpoints import Loss
from queries.models.drivers import Run
from queries.models.history import Failure, Operation
from queries.selectors.kafka.lag import lag_of
from queries.services.checkpoints.rewind_and_reset import request_reset
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.kafka.go_on_after_loss import TO_EARLIEST, go_on
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.redis, pytest.mark.django_db]

OLD, NEW = 4_000, 8_000


class Copies:
    """Queries that copy a topic each, and what has arrived of it."""

    def __init__(self, world: World, broker: KafkaBroker) -> None:
        self.world = world
        self.broker = broker
        self.topics: dict[str, tuple[str, str]] = {}  # query -> topic, and the sink's

    def define(self, name: str, *, partitions: int = 1, **options: str) -> None:
        """Define a query over a topic of its own that holds `OLD` records."""
        topic, out = self.broker.topic(name, partitions=partitions), self.broker.topic("out")
        self.topics[name] = (topic, out)
        self.write(name, OLD, partitions)
        sink = {"kafka.bootstrap.servers": self.broker.servers, "topic": out}
        self.world.query(
            name,
            self.broker.servers,
            topic,
            options=options,
            sink={"format": "kafka", "options": sink},
        )

    def write(self, name: str, count: int, partitions: int) -> None:
        """Write records to a topic, as many to each of its partitions."""
        for number in range(partitions):
            each = ((None, str(n)) for n in range(count // partitions))
            self.broker.produce(self.topics[name][0], each, partition=number)

    def recreate(self, name: str, count: int, *, partitions: int = 1) -> None:
        """Delete a topic, create it again, and write to it."""
        self.broker.recreate(self.topics[name][0], partitions=partitions)
        self.write(name, count, partitions)

    def arrived(self, name: str) -> int:
        """Return how many records the sink holds."""
        return sum(end for _, end in self.broker.watermarks(self.topics[name][1]).values())

    def copied(self, name: str, count: int) -> None:
        """Wait until so many records have arrived."""
        self.world.wait(lambda: self.arrived(name) >= count, f"{name} has copied {count}")


def _phase(world: World, name: str, phase: str) -> bool:
    return world.row(name).phase == phase


def _safe(world: World, name: str) -> bool:
    return world.row(name).risk == ""


def _ended(operation: Operation) -> str:
    return Operation.objects.get(pk=operation.pk).outcome


def _lost(name: str) -> list[tuple[str, int | None, int | None, int | None]]:
    rows = Loss.objects.filter(query__name=name).order_by("from_offset")
    return [(row.kind, row.partition, row.from_offset, row.to_offset) for row in rows]


def test_a_stopped_query_starts_on_a_recreated_topic_only_where_losses_are_skipped(
    world: World, broker: KafkaBroker, client: Client, operator: Any
) -> None:
    copies = Copies(world, broker)
    before = {"strict": 1, "strict-more": 1, "strict-fewer": 2, "lenient": 1}
    after = {"strict": 1, "strict-more": 2, "strict-fewer": 1, "lenient": 1}
    for name, partitions in before.items():
        fails = "false" if name == "lenient" else "true"
        copies.define(name, partitions=partitions, failOnDataLoss=fails)
        world.start(name)
    for name in before:
        copies.copied(name, OLD)
    world.look()
    for name in before:
        world.stop(name)
    for name, partitions in after.items():
        copies.recreate(name, NEW, partitions=partitions)
    world.look()
    for name in before:
        assert "was deleted and recreated" in world.row(name).risk, name
        assert lag_of(world.row(name), now=timezone.now()).total.records == NEW, name

    for name in before:
        world.start(name)
    client.force_login(operator)
    for name in ("strict", "strict-more", "strict-fewer"):
        world.wait(partial(_phase, world, name, "FAILED"), f"{name} is refused")
        failure = Failure.objects.get(run__query__name=name)
        assert failure.category == Category.SOURCE_LOST
        assert f"Topic {copies.topics[name][0]} was deleted and recreated" in failure.root_cause
        page = client.get(f"/failures/{failure.pk}/").content.decode()
        assert "Reset the query to earliest" in page
        assert "Skip lost data" not in page
        assert copies.arrived(name) == OLD
        assert _lost(name) == []

    # Where Spark is told to go over gaps it starts, and what it never reads is counted.
    copies.copied("lenient", OLD + NEW - OLD)
    world.wait(lambda: _lost("lenient"), "the ledger holds what was never read")
    assert _lost("lenient") == [(LossKind.RECREATED, 0, 0, OLD)]
    assert Loss.objects.get(query__name="lenient").records == OLD
    world.wait(lambda: world.row("lenient").risk == "", "it is no risk any more")

    # The way out that the failure names works: all of the new topic arrives.
    for name in ("strict", "strict-fewer"):
        operation = request_reset(
            query=world.row(name), wish=WantedStart("earliest"), actor="otto", now=timezone.now()
        )
        world.wait(partial(_ended, operation), f"{name} is reset")
        assert Operation.objects.get(pk=operation.pk).outcome == OperationOutcome.DONE
        world.start(name)
        copies.copied(name, OLD + NEW)
        world.wait(partial(_safe, world, name), f"{name} is safe")
        assert _lost(name) == []


def test_a_running_query_whose_topic_is_recreated_is_at_risk_and_its_loss_is_counted(
    world: World, broker: KafkaBroker, client: Client, operator: Any
) -> None:
    copies = Copies(world, broker)
    before = {"strict": 1, "lenient": 1, "lenient-more": 1, "lenient-fewer": 2, "strict-fewer": 2}
    after = {"strict": 1, "lenient": 1, "lenient-more": 2, "lenient-fewer": 1, "strict-fewer": 1}
    for name, partitions in before.items():
        fails = "true" if name.startswith("strict") else "false"
        copies.define(name, partitions=partitions, failOnDataLoss=fails)
        # An interval as long as the topic is away: Spark sees the old one, then the new one.
        revision = world.row(name).revisions.get()
        revision.spec["trigger"]["interval"] = "30 seconds"
        revision.save()
        world.start(name)
    for name in before:
        copies.copied(name, OLD)
    world.look()
    for name, partitions in after.items():
        copies.recreate(name, NEW, partitions=partitions)
    world.look()
    # Where the new topic has fewer partitions Spark itself refuses; the way out is the same.
    world.wait(partial(_phase, world, "strict-fewer", "FAILED"), "strict-fewer is refused")
    failure = Failure.objects.get(run__query__name="strict-fewer")
    assert failure.category == Category.SOURCE_LOST
    client.force_login(operator)
    page = client.get(f"/failures/{failure.pk}/").content.decode()
    assert "Reset the query to earliest" in page
    with pytest.raises(NotAllowed) as refused:
        go_on(query=world.row("strict-fewer"), offsets=1, actor="otto", now=timezone.now())
    assert refused.value.way_out == TO_EARLIEST

    lost = {"strict": OLD, "lenient": OLD, "lenient-more": OLD, "lenient-fewer": OLD // 2}
    for name, count in lost.items():
        world.wait(partial(_lost, name), f"the loss of {name} is counted")
        world.look()
        assert _lost(name) == [(LossKind.RECREATED, 0, 0, count)], name
        copies.copied(name, OLD + NEW - count)
        assert world.row(name).phase == "RUNNING"
        at_risk = "was deleted and recreated" in world.row(name).risk
        assert at_risk == (name == "strict")
    # What fails on data loss does not start on that checkpoint again.
    world.stop("strict")
    world.start("strict")
    world.wait(partial(_phase, world, "strict", "FAILED"), "strict is refused")


FUNCTION = """
def define(spark, params):
    rows = spark.readStream.format("kafka").options(**params).load()
    return rows.writeStream.format("noop")
"""


def test_a_function_whose_own_topic_is_recreated_while_it_reads_is_at_risk(
    world: World, broker: KafkaBroker, tmp_path: Path
) -> None:
    code = tmp_path / "code-root"
    code.mkdir()
    (code / "reads.py").write_text(FUNCTION)
    application = world.application.revisions.get()
    application.spec["python_path"] = [str(code)]
    application.save()
    copies = Copies(world, broker)
    copies.define("by-code")
    topic, _ = copies.topics["by-code"]
    revision = world.row("by-code").revisions.get()
    options = {
        "kafka.bootstrap.servers": broker.servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    revision.kind = "python"
    revision.spec = {
        "kind": "python",
        "function": "reads:define",
        "params": options,
        # As long as the topic is away: Spark sees the old one, then the new one.
        "trigger": {"kind": "processing_time", "interval": "30 seconds"},
    }
    revision.save()
    world.start("by-code")

    def has_read() -> bool:
        lag = lag_of(world.row("by-code"), now=timezone.now())
        return [one.topic for one in lag.topics] == [topic] and lag.total.records == 0

    world.wait(has_read, "it has read the old topic")
    assert world.row("by-code").risk == ""
    copies.recreate("by-code", NEW)
    said = f"Topic {topic} was deleted and recreated"
    world.wait(lambda: said in world.row("by-code").risk, "it is at risk")
    run = Run.objects.get(query__name="by-code")
    assert [one for one in run.warnings if said in one]
    assert world.row("by-code").phase == "RUNNING"
    # It does not start on that checkpoint again, and resetting it is the way out.
    world.stop("by-code")
    world.start("by-code")
    world.wait(partial(_phase, world, "by-code", "FAILED"), "it is refused")
    failure = Failure.objects.get(run__query__name="by-code")
    assert failure.category == Category.SOURCE_LOST
    assert said in failure.root_cause
