"""Each verdict on a query's page, brought about by what its driver says.

Progress, idle events and heartbeats come in their wire form and are stored as the ingester stores
them; a look at the brokers is supervision's own.
"""

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from headgate_ground.wire import EventKind, HeartbeatBody, QueryPulse, WireEvent
from listeners import models
from listeners.store import EventBatch, store
from queries.brokers.reader import Unreachable
from queries.models.definitions import Checkpoint
from queries.selectors.query_lines import query_line
from queries.services.kafka.lag import look_at_sources
from queries.services.supervision.records import note_verdicts
from tests.conftest_brokers import Brokers, MakeQuery, brokers, commit, make, said
from tests.scenarios.stage import Stage

__all__ = ["brokers", "make"]

AS_FAST_AS_POSSIBLE = {"kind": "processing_time", "interval": "0 seconds"}


class Driver:
    """The driver of one running query: what it says arrives as the ingester stores it."""

    def __init__(
        self, stage: Stage, name: str, *, since_s: float = 300, proven: bool = True
    ) -> None:
        self.now = timezone.now()
        stage.now = self.ago(since_s)
        stage.start(name)
        stage.ready(name)
        if proven:
            stage.commit(name)
        self.run = stage.run(name)
        self.seq = 0

    def ago(self, seconds: float) -> datetime:
        return self.now - timedelta(seconds=seconds)

    def batches(
        self,
        *,
        end_s: float,
        every_s: float,
        duration_s: float,
        rows: int = 100,
        count: int = 5,
        first: int = 0,
    ) -> None:
        """Report batches from number `first` on; the newest ended `end_s` ago."""
        for number in range(first, first + count):
            began = self.ago(end_s + duration_s + every_s * (first + count - 1 - number))
            body = {
                "timestamp": began.astimezone(UTC).isoformat(timespec="milliseconds"),
                "batchId": number,
                "batchDuration": int(duration_s * 1000),
                "numInputRows": rows,
                "durationMs": {"addBatch": int(duration_s * 1000)},
            }
            ended = began + timedelta(seconds=duration_s)
            self._say(EventKind.PROGRESS, ended, body, batch=number)

    def idle(self, *, at_s: float) -> None:
        self._say(EventKind.IDLE, self.ago(at_s), {})

    def beat(
        self, *, jvm: bool = True, alive: bool = True, task_at: datetime | None = None
    ) -> None:
        pulse = QueryPulse(self.run.pk, alive, task_at.isoformat() if task_at else None)
        beat = HeartbeatBody(
            mode="private",
            streams=None,
            ours=None,
            listeners=(),
            last_seq=self.seq,
            unsent=0,
            outbox_dropped=0,
            missing_batches=0,
            repaired=0,
            jvm_alive=jvm,
            queries=(pulse,) if jvm else (),
        )
        self._say(EventKind.HEARTBEAT, self.ago(1), beat.body(), query=None, run=None)

    def _say(self, kind: EventKind, at: datetime, body: dict[str, Any], **columns: Any) -> None:
        self.seq += 1
        event = WireEvent(
            driver=self.run.driver_id,
            epoch=self.run.driver.epoch,
            seq=self.seq,
            at=at.isoformat(),
            kind=kind,
            spark_run_id=self.run.spark_run_id,
            body=body,
            **{"query": self.run.query_id, "run": self.run.pk, **columns},
        )
        batch = EventBatch(self.now)
        batch.add(WireEvent.decode(event.encode()))
        store(batch)


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def verdict(client: Client) -> tuple[str, str]:
    """Return the verdict that the query's page shows, and its evidence."""
    page = html.unescape(client.get("/queries/delays/").content.decode())
    badges = re.findall(r'<span class="state" data-tone="\w+" title="([^"]*)">([^<]+)</span>', page)
    _, (evidence, word) = badges[:2]  # the phase stands before it
    return word, evidence


def test_progressing(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays")
    driver.batches(end_s=2, every_s=5, duration_s=1)
    driver.beat()
    word, evidence = verdict(vera)
    assert word == "Progressing"
    assert "Batch 4 took 1 s of the trigger's 5 s and read 100 rows" in evidence


def test_idle(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays")
    driver.batches(end_s=40, every_s=5, duration_s=1)
    driver.idle(at_s=3)
    word, evidence = verdict(vera)
    assert word == "Idle"
    assert re.fullmatch(r"No new data for \d\d s; the last batch was 4\.", evidence)


def _two_looks(
    driver: Driver, brokers: Brokers, place: Path, *, arrived: int, committed: int
) -> None:
    """Look at the brokers twice, ten seconds apart."""
    for seconds, latest, offset in ((12, 50_000, 100), (2, 50_000 + arrived, 100 + committed)):
        brokers.said["one:9092"] = said({0: (0, latest)}, written=driver.ago(60))
        commit(place, 0 if seconds == 12 else 1, {0: offset})
        look_at_sources(now=driver.ago(seconds), readers=brokers)


def test_lagging_without_an_interval(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    make("delays", trigger=AS_FAST_AS_POSSIBLE, committed={0: 100})
    driver = Driver(stage, "delays")
    driver.batches(end_s=1, every_s=1, duration_s=1)
    _two_looks(driver, brokers, tmp_path / "delays", arrived=3000, committed=1000)
    word, evidence = verdict(vera)
    assert word == "Lagging"
    assert "51,900 records are unread" in evidence
    assert "Input 300 rows/s, processed 100 rows/s." in evidence


def test_catching_up_without_an_interval(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    make("delays", trigger=AS_FAST_AS_POSSIBLE, committed={0: 100})
    driver = Driver(stage, "delays")
    driver.batches(end_s=1, every_s=1, duration_s=1)
    _two_looks(driver, brokers, tmp_path / "delays", arrived=200, committed=1000)
    word, evidence = verdict(vera)
    assert word == "Catching up"
    assert "Input 20 rows/s, processed 100 rows/s." in evidence


TWELVE = dict.fromkeys(range(12), 100)


def _looks(
    driver: Driver, brokers: Brokers, latest: dict[int, int], *at_s: float, **more: Any
) -> None:
    """Look at the brokers, so many seconds ago each time: the same ends at each."""
    ends = {number: (0, end) for number, end in latest.items()}
    brokers.said["one:9092"] = said(ends, written=driver.ago(60), **more)
    for seconds in at_s:
        look_at_sources(now=driver.ago(seconds), readers=brokers)


def test_partitions_that_no_batch_reads_are_not_progressing(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    make("delays", committed=TWELVE)
    driver = Driver(stage, "delays")
    driver.batches(end_s=2, every_s=5, duration_s=1)
    unread = {number: 100 if number < 2 else 600 for number in range(12)}
    _looks(driver, brokers, unread, 120, 1)
    word, evidence = verdict(vera)
    assert word == "Lagging"
    assert "10 of 12 partitions hold records that no batch has read for" in evidence


def test_partitions_that_the_next_batch_will_read_are_no_trouble(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers
) -> None:
    make("delays", committed=TWELVE)
    driver = Driver(stage, "delays")
    driver.batches(end_s=2, every_s=5, duration_s=1)
    _looks(driver, brokers, {**TWELVE, 3: 600}, 1)
    assert verdict(vera)[0] == "Progressing"


@pytest.mark.sql("queries.selectors.supervision.query_filters.queries")
def test_a_query_whose_source_is_away_is_not_progressing(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers
) -> None:
    make("delays", committed=TWELVE)
    driver = Driver(stage, "delays")
    driver.batches(end_s=20, every_s=5, duration_s=1)
    brokers.said["one:9092"] = Unreachable("Connection refused")
    look_at_sources(now=driver.ago(10), readers=brokers)
    word, evidence = verdict(vera)
    assert word == "Waiting for source"
    assert re.search(r"Its source has not responded for \d+ s", evidence)
    assert _count(vera, "WAITING", driver) == ["delays"]
    # It reads all the same: only Headgate cannot reach the source.
    driver.batches(end_s=2, every_s=5, duration_s=1, first=10, count=1)
    word, evidence = verdict(vera)
    assert word == "Progressing"
    silent = r"but Headgate has not received a response from the source for \d+ s"
    assert re.search(f"The query reaches its source, {silent}", evidence)


def test_what_an_open_transaction_holds_back_is_not_idle(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers
) -> None:
    make("delays", committed=TWELVE, options={"kafka.isolation.level": "read_committed"})
    driver = Driver(stage, "delays")
    driver.batches(end_s=40, every_s=5, duration_s=1)
    driver.idle(at_s=3)
    _looks(driver, brokers, {**TWELVE, 3: 2150}, 120, 1, stable={3: 100})
    word, evidence = verdict(vera)
    assert word == "Waiting for source"
    assert "2,050 offsets are waiting for an open transaction." in evidence
    page = html.unescape(vera.get("/queries/delays/lag/").content.decode())
    assert "2,050 waiting for an open transaction" in page


def test_unread_records_that_triggers_pass_over_are_not_idle(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers
) -> None:
    make("delays", committed=TWELVE, options={"minOffsetsPerTrigger": "1000000"})
    driver = Driver(stage, "delays")
    driver.batches(end_s=100, every_s=5, duration_s=1)
    driver.idle(at_s=3)
    _looks(driver, brokers, {**TWELVE, 3: 600}, 60, 1)
    word, evidence = verdict(vera)
    assert word == "Waiting for source"
    assert (
        "1 of 12 partitions holds unread records, but its triggers do not start a batch" in evidence
    )


def test_stalled_unless_a_task_has_finished(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays")
    driver.batches(end_s=200, every_s=5, duration_s=1)
    driver.beat(task_at=driver.ago(190))
    word, evidence = verdict(vera)
    assert word == "Stalled"
    assert "No batch, no event and no finished task for 3 min" in evidence
    assert "Its driver still sends heartbeats." in evidence
    driver.beat(task_at=driver.ago(2))
    assert verdict(vera)[0] == "Progressing"


def test_a_hang_in_the_first_batch_is_stalled_and_a_long_one_is_not(
    vera: Client, stage: Stage
) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays", proven=False)
    assert stage.phase("delays") == "STARTING"
    driver.beat(task_at=driver.ago(200))
    word, evidence = verdict(vera)
    assert word == "Stalled"
    assert "No batch, no event and no finished task for 3 min" in evidence
    assert _count(vera, "STALLED", driver) == ["delays"]
    assert "Stalled" in vera.get("/").content.decode()
    driver.beat(task_at=driver.ago(2))
    page = vera.get("/queries/delays/").content.decode()
    assert "Starting" in page
    assert "Stalled" not in page
    assert _count(vera, "STALLED", driver) == []


def _count(client: Client, word: str, driver: Driver) -> list[str]:
    """Return the names that the list shows under a verdict, once it is noted."""
    note_verdicts(now=driver.now)
    page = client.get(f"/queries/?health={word}").content.decode()
    return re.findall(r'data-name="([^"]+)"', page)


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        ((False, True), "It should be running, but its JVM has ended."),
        ((True, False), "It should be running, but the query inside the driver has ended."),
    ],
)
def test_query_missing(vera: Client, stage: Stage, heard: tuple[bool, bool], says: str) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays")
    driver.batches(end_s=2, every_s=5, duration_s=1)
    driver.beat(jvm=heard[0], alive=heard[1])
    assert verdict(vera) == ("Query missing", says)


def test_no_telemetry(vera: Client, stage: Stage, tmp_path: Path) -> None:
    stage.query("delays")
    Checkpoint.objects.update(location=tmp_path.as_uri())
    driver = Driver(stage, "delays")
    driver.batches(end_s=200, every_s=5, duration_s=1)
    (tmp_path / "commits").mkdir()  # an entry that was made now
    word, evidence = verdict(vera)
    assert word == "No telemetry"
    assert "No event for 3 min, but a commit was written to its checkpoint" in evidence


def test_a_backlog_that_no_broker_tells_of_any_more_is_not_counted(
    vera: Client, stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays", trigger=AS_FAST_AS_POSSIBLE, committed={0: 100})
    driver = Driver(stage, "delays")
    driver.batches(end_s=1, every_s=1, duration_s=1)
    _two_looks(driver, brokers, tmp_path / "delays", arrived=3000, committed=1000)
    query.lags.update(seen_at=driver.ago(120))
    assert verdict(vera)[0] == "Progressing"


def test_a_heartbeat_of_a_release_before_says_nothing_of_jvm_and_queries(
    vera: Client, stage: Stage
) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays")
    driver.batches(end_s=2, every_s=5, duration_s=1)
    driver.beat()
    beat = models.Heartbeat.objects.get(driver=driver.run.driver_id)
    for name in ("jvm_alive", "queries"):
        beat.body.pop(name)
    beat.save()
    assert verdict(vera)[0] == "Progressing"


def test_stalled_for_counts_from_the_verdicts_change(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays", since_s=7200)
    driver.batches(end_s=1000, every_s=5, duration_s=1)
    for seconds in (995, 600, 300):  # it is judged every few seconds; it stalled 61 s after
        note_verdicts(now=driver.ago(seconds))
    query = stage.row("delays")
    assert (query.verdict, query.verdict_since) == ("STALLED", driver.ago(600))
    attention = vera.get("/").content.decode().split("overview-attention", 1)[1]
    ages = re.findall(r"<time [^>]*data-age[^>]*>([^<]*)</time>", attention.split("</section>")[0])
    assert ages == ["10 min"]
    said = query_line("delays", now=driver.now).health
    assert said is not None
    assert said.since == driver.ago(600)


def test_a_verdict_is_noted_when_it_changes_and_forgotten_at_the_end(stage: Stage) -> None:
    stage.query("delays")
    driver = Driver(stage, "delays")
    driver.batches(end_s=2, every_s=5, duration_s=1)
    assert note_verdicts(now=driver.now) == 1
    assert note_verdicts(now=driver.now + timedelta(seconds=5)) == 0
    assert stage.row("delays").verdict_since == driver.now
    # Not noted yet: what the evidence says must do.
    later = driver.now + timedelta(minutes=10)
    line = query_line("delays", now=later)
    assert line.health is not None
    assert line.health.verdict == "STALLED"
    assert line.since is not None
    assert line.since < later
    stage.launcher.obliging = True
    stage.stop("delays")
    assert note_verdicts(now=later) == 1
    assert (stage.row("delays").verdict, stage.row("delays").verdict_since) == ("", None)


def test_one_query_that_cannot_be_judged_keeps_no_other_from_it(stage: Stage) -> None:
    stage.query("broken", trigger={"kind": "of another release"})
    stage.query("delays")
    driver = Driver(stage, "delays")
    driver.batches(end_s=2, every_s=5, duration_s=1)
    stage.up("broken")
    assert note_verdicts(now=driver.now) == 1
    assert stage.row("delays").verdict == "PROGRESSING"
