"""Records deleted under queries, and a broker that goes away: warned of, named, gone on from."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.ticks import LAG_EVERY_S
from queries.brokers.reader import LOOK_S
from queries.domain.errors import Conflict
from queries.domain.failures.categories import Category
from queries.domain.states import LossKind, OperationOutcome, Reason
from queries.models.checkpoints import Loss, SourceLag
from queries.models.drivers import Driver, Run
from queries.models.history import Failure
from queries.selectors.kafka.lag import lag_of
from queries.services.kafka.go_on_after_loss import go_on
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.redis, pytest.mark.django_db]


def _committed(world: World, name: str, **partitions: int) -> bool:
    rows = SourceLag.objects.filter(query__name=name)
    found = {str(row.partition): row.committed or 0 for row in rows}
    return all(found.get(number.removeprefix("p"), 0) >= at for number, at in partitions.items())


def _numbers(count: int, start: int = 0) -> Iterator[tuple[str, str]]:
    return (("k", str(n)) for n in range(start, start + count))


@pytest.mark.promise
def test_records_deleted_under_queries_are_warned_of_named_and_gone_on_from(
    world: World, broker: KafkaBroker, client: Client, operator: User
) -> None:
    topic = broker.topic("in", partitions=2, retention_ms="3600000")
    out = broker.topic("out")
    world.query(
        "counts",
        broker.servers,
        topic,
        sql="SELECT CAST(partition AS STRING) AS key, CAST(count(*) AS STRING) AS value "
        "FROM records GROUP BY partition",
        sink={
            "format": "kafka",
            "options": {"kafka.bootstrap.servers": broker.servers, "topic": out},
            "output_mode": "update",
        },
    )
    world.query("lenient", broker.servers, topic, options={"failOnDataLoss": "false"})
    broker.produce(topic, _numbers(100), partition=0)
    broker.produce(topic, _numbers(50), partition=1)
    for name in ("counts", "lenient"):
        world.start(name)
    world.wait(lambda: _committed(world, "counts", p0=100, p1=50), "counts has read all")
    world.wait(lambda: _committed(world, "lenient", p0=100, p1=50), "lenient has read all")
    world.stop("counts")
    world.stop("lenient")

    # The clock warns while there is time.
    broker.produce(topic, _numbers(200, 100), partition=0)
    world.look()
    counts = world.row("counts")
    assert "Will lose data in 59 min unless the query runs" in counts.risk
    assert f"{topic}-0" in counts.risk
    assert counts.risk_at is not None
    client.force_login(operator)
    listed = client.get("/queries/?group=risk").content.decode()
    assert "At risk" in listed
    assert "counts" in listed

    # Then 80 records go, and neither is looked at before Spark reads on.
    world.looks = False
    broker.delete_records(topic, {0: 180})
    world.start("lenient")
    world.start("counts")
    world.wait(lambda: world.row("counts").phase == "FAILED", "the loss is a failure")
    failure = Failure.objects.get(run__query__name="counts")
    assert failure.category == Category.SOURCE_LOST
    world.looks = True
    world.look()
    gaps = lag_of(world.row("counts"), now=timezone.now()).gaps
    assert [(gap.topic, gap.partition, gap.first, gap.until) for gap in gaps] == [
        (topic, 0, 100, 180)
    ]
    page = client.get(f"/failures/{failure.pk}/").content.decode()
    assert "80 offsets" in page
    assert "Skip lost data" in page
    assert "Has lost data: 80 offsets" in world.row("counts").risk

    # Spark went over it in silence where it was told to; the batch's rows tell.
    def skipped() -> Loss | None:
        return Loss.objects.filter(query__name="lenient").first()

    loss = world.wait(skipped, "the ledger holds what was skipped")
    assert (loss.kind, loss.source, loss.partition) == (LossKind.SKIPPED, topic, 0)
    assert (loss.from_offset, loss.to_offset, loss.offsets, loss.records) == (100, 180, 80, 80)

    # Going on takes the count, and keeps the state.
    with pytest.raises(Conflict, match="80 offsets are lost, not 79"):
        go_on(query=world.row("counts"), offsets=79, actor="otto", now=timezone.now())
    answer = client.post("/queries/counts/go-on/", {"typed": "80"})
    assert answer.status_code == 302
    operation = world.row("counts").operations.get(verb="go-on")
    world.wait(lambda: operation.__class__.objects.get(pk=operation.pk).outcome, "it has ended")
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.DONE, operation.detail.text
    run = Run.objects.get(query__name="counts", outcome="")
    assert not run.accepts_loss
    before = Run.objects.filter(query__name="counts", accepts_loss=True)
    assert before.count() == 1
    loss = Loss.objects.get(query__name="counts")
    assert (loss.kind, loss.from_offset, loss.to_offset) == (LossKind.RETENTION, 100, 180)
    assert (loss.offsets, loss.records, loss.accepted_by) == (80, 80, operator.username)
    broker.produce(topic, _numbers(5), partition=0)
    world.wait(lambda: _committed(world, "counts", p0=305), "it streams on")
    last = {one.key: one.value for one in broker.read(out)}
    assert last == {"0": "225", "1": "50"}  # 305 written, 80 lost; no count started over
    assert world.row("counts").risk == ""
    assert Loss.objects.filter(query__name="lenient").count() == 1
    ledger = client.get("/api/v1/queries/counts/losses/").json()["results"]
    assert [one["offsets"] for one in ledger] == [80]


def test_a_broker_that_goes_away_restarts_nothing_and_is_named(
    world: World, broker: KafkaBroker, client: Client, operator: User
) -> None:
    topic, out = broker.topic("in", partitions=2), broker.topic("out")
    sink = {"format": "kafka", "options": {"kafka.bootstrap.servers": broker.servers}}
    sink["options"]["topic"] = out  # type: ignore[index]
    world.query("copy", broker.servers, topic, sink=sink)
    broker.produce(topic, _numbers(20))
    world.start("copy")
    world.wait(lambda: world.row("copy").phase == "RUNNING", "it runs")
    world.wait(lambda: broker.watermarks(out)[0][1] >= 20, "all is copied")
    drivers, runs = Driver.objects.count(), world.runs("copy")

    broker.stop()
    world.look()  # the first look after it says so, and looks come every 5 s
    assert LAG_EVERY_S + LOOK_S < 15
    copy = world.row("copy")
    assert copy.source_reachable is False
    assert copy.source_unreachable_since is not None
    client.force_login(operator)
    assert "Source not reachable since" in client.get("/queries/copy/").content.decode()
    ends = timezone.now()

    def outage_is_over() -> bool:
        return (timezone.now() - ends).total_seconds() > 60

    world.wait(outage_is_over, "the outage lasts")
    assert (Driver.objects.count(), world.runs("copy")) == (drivers, runs)
    assert Failure.objects.count() == 0
    since = world.row("copy").source_unreachable_since
    assert since == copy.source_unreachable_since

    broker.start()
    broker.produce(topic, _numbers(30, 20))
    world.wait(lambda: broker.watermarks(out)[0][1] >= 50, "it streams on")
    world.wait(lambda: world.row("copy").source_reachable, "the source is back")
    assert (Driver.objects.count(), world.runs("copy")) == (drivers, runs)
    assert world.row("copy").source_unreachable_since is None

    # The same with a broker that is away when the query starts.
    world.stop("copy")
    broker.stop()
    world.look()
    world.start("copy")
    waits = world.wait(
        lambda: row if (row := world.row("copy")).phase_reason == Reason.WAITS_SOURCE else None,
        "it says what it waits for",
    )
    assert waits.phase == "STARTING"
    assert "Source not reachable since" in waits.phase_detail.text
    began = timezone.now()
    world.wait(lambda: (timezone.now() - began).total_seconds() > 15, "it waits on")
    assert world.row("copy").phase == "STARTING"
    runs = world.runs("copy")
    broker.start()
    broker.produce(topic, _numbers(10, 50))
    world.wait(lambda: world.row("copy").phase == "RUNNING", "it starts by itself")
    world.wait(lambda: broker.watermarks(out)[0][1] >= 60, "and streams")
    assert world.runs("copy") == runs
    copied = sorted(int(one.value or "") for one in broker.read(out))
    assert copied == list(range(60))
