"""Only what a committed batch has passed over is lost; what turned out wrong is taken back."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from listeners.models import Progress
from queries.domain.alerts.forms import EntryKind, IncidentKind
from queries.domain.errors import Conflict, Invalid, NotAllowed
from queries.domain.kafka.losses import OffsetGap
from queries.domain.kafka.retention import Retention
from queries.domain.kafka.topic_ids import Remembered, as_json
from queries.domain.states import LossKind
from queries.domain.system import SystemHealth
from queries.models.alerts import Incident
from queries.models.checkpoints import Loss
from queries.models.definitions import Checkpoint, Query
from queries.selectors.alerts.troubles import troubles
from queries.selectors.kafka.lag import lag_of, loss_totals
from queries.services.alerts import incidents
from queries.services.kafka import go_on_after_loss
from queries.services.kafka.go_on_after_loss import go_on
from queries.services.kafka.lag import look_at_sources
from queries.services.kafka.loss_corrections import correct
from queries.services.kafka.loss_ledger import keep_ledger, write_gaps
from tests.conftest_brokers import HOUR_MS, NOW, Brokers, MakeQuery, brokers, commit, make, said
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

__all__ = ["brokers", "make"]

LENIENT = {"failOnDataLoss": "false"}


def _look(brokers: Brokers, earliest: int, *, after_s: float = 0, **more: Any) -> None:
    brokers.said["one:9092"] = said({0: (earliest, 400), 1: (0, 100)}, **more)
    look_at_sources(now=NOW + timedelta(seconds=after_s), readers=brokers)


def _batch(stage: Stage, name: str, *, rows: int, start: int, end: int, batch: int = 1) -> None:
    run = stage.run(name)
    source = {
        "startOffset": {"flights": {"0": start}},
        "endOffset": {"flights": {"0": end}},
        "numInputRows": rows,
    }
    Progress.objects.create(
        driver=run.driver_id,
        epoch=run.epoch,
        seq=batch,
        query=run.query_id,
        run=run.pk,
        spark_run_id="here",
        batch=batch,
        at=NOW,
        received_at=NOW,
        num_input_rows=rows,
        body={"sources": [source]},
    )


def _watch(monkeypatch: pytest.MonkeyPatch, after_s: float) -> None:
    monkeypatch.setattr(incidents, "system_health", lambda now: SystemHealth(now, ()))
    incidents.watch_incidents(now=NOW + timedelta(seconds=after_s))


@pytest.mark.parametrize("options", [{}, LENIENT])
def test_a_slow_reader_that_had_fetched_everything_has_lost_nothing(
    stage: Stage,
    make: MakeQuery,
    brokers: Brokers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
) -> None:
    """1,005 offsets are deleted while a batch that has fetched them is still under way."""
    query = make("slow", options=options)
    stage.up("slow")
    _look(brokers, 0)
    _look(brokers, 350, after_s=5)
    query.refresh_from_db()
    assert query.risk.startswith("May lose data: 250 offsets of flights-0 were deleted before a")
    lag = lag_of(query, now=NOW)
    assert ([gap.offsets for gap in lag.gaps], lag.certain) == ([250], False)
    _watch(monkeypatch, 6)
    incident = Incident.objects.get(kind=IncidentKind.AT_RISK)
    assert incident.detail == query.risk

    commit(tmp_path / "slow", 1, {0: 400, 1: 100})
    _batch(stage, "slow", rows=300, start=100, end=400)
    _look(brokers, 350, after_s=10)
    keep_ledger(now=NOW + timedelta(seconds=11))
    query.refresh_from_db()
    assert query.risk == ""
    assert not Loss.objects.exists()
    told = [one.text for one in incident.entries.filter(kind=EntryKind.CORRECTED)]
    if not options:  # a strict one would have failed: taken back in the open
        assert len(told) == 1
        assert told[0].startswith("Nothing was lost: a batch committed past the deleted")
        incident.refresh_from_db()
        assert told[0] in incident.detail


def test_what_a_committed_batch_has_passed_over_is_lost(
    stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    make("slow", options=LENIENT)
    stage.up("slow")
    _look(brokers, 0)
    _look(brokers, 350, after_s=5)
    assert not Loss.objects.exists()
    commit(tmp_path / "slow", 1, {0: 400, 1: 100})
    _batch(stage, "slow", rows=120, start=100, end=400)  # 70 of the 250 were fetched in time
    _look(brokers, 350, after_s=10)
    keep_ledger(now=NOW + timedelta(seconds=11))
    assert Loss.objects.get().records == 180


def test_where_offsets_are_no_records_what_was_passed_over_counts(
    stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    make("slow", options=LENIENT)
    stage.up("slow")
    compacted = Retention(ms=HOUR_MS, compacts=True)
    _look(brokers, 350, retention=compacted)
    assert not Loss.objects.exists()
    commit(tmp_path / "slow", 1, {0: 300, 1: 100})
    _look(brokers, 350, after_s=5, retention=compacted)
    loss = Loss.objects.get()
    assert (loss.from_offset, loss.to_offset, loss.records) == (100, 300, None)


def test_what_is_gone_from_a_stopped_query_is_lost_at_once(
    stage: Stage, make: MakeQuery, brokers: Brokers
) -> None:
    query = make("slow", options=LENIENT)
    stage.up("slow")
    _look(brokers, 350)
    assert not Loss.objects.exists()
    run = stage.run("slow")
    stage.stop("slow")
    stage.launcher.end_run(run.pk)
    stage.look("slow")
    _look(brokers, 350, after_s=5)
    query.refresh_from_db()
    assert query.risk.startswith("Has lost data: 250 offsets")
    assert lag_of(query, now=NOW).certain
    assert Loss.objects.get().records == 250


def test_nothing_is_accepted_as_lost_while_a_run_may_have_it(
    stage: Stage, make: MakeQuery, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = make("slow")
    stage.up("slow")
    _look(brokers, 350)

    def look(**asked: Any) -> int:
        return look_at_sources(readers=brokers, **asked)

    monkeypatch.setattr(go_on_after_loss, "look_at_sources", look)
    with pytest.raises(NotAllowed, match="may have fetched"):
        go_on(query=query, offsets=250, actor="otto", now=NOW)
    assert not Loss.objects.exists()


# --- corrections --------------------------------------------------------------------------


@pytest.fixture
def falsely(stage: Stage, make: MakeQuery, monkeypatch: pytest.MonkeyPatch) -> Query:
    """A running query whose ledger and incident say that 5,880 records of a new topic were lost."""
    query = make("delays")
    stage.up("delays")
    Checkpoint.objects.filter(query=query).update(
        topic_ids=as_json({"flights": {"flights": Remembered("new")}})
    )
    for first, until, topic_id in ((0, 4680, "new"), (4680, 5880, "old")):
        gaps = [OffsetGap("flights", 0, first, until)]
        Loss.objects.create(
            query=query,
            kind=LossKind.RECREATED,
            source="flights",
            partition=0,
            topic_id=topic_id,
            from_offset=first,
            to_offset=until,
            offsets=gaps[0].offsets,
            records=gaps[0].offsets,
            noticed_at=NOW,
        )
    _watch(monkeypatch, 1)
    incident = Incident.objects.get()
    assert incident.detail == "5,880 records were never read; they are listed in the loss ledger."
    return query


def _kept(query: Query) -> list[tuple[str, int | None, int | None]]:
    rows = Loss.objects.filter(query=query).order_by("pk")
    return [(row.kind, row.from_offset, row.to_offset) for row in rows]


BOTH = [(LossKind.RECREATED, 0, 4680), (LossKind.RECREATED, 4680, 5880)]


def test_a_false_entry_is_taken_back_by_another_and_the_incident_says_so(
    falsely: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    false = Loss.objects.get(topic_id="new")
    correct(loss=false, reason="That batch failed.", actor="otto", now=NOW)
    assert _kept(falsely) == [*BOTH, (LossKind.CORRECTED, 0, 4680)]
    line = Loss.objects.get(kind=LossKind.CORRECTED)
    assert (line.corrects, line.note, line.noted_by) == (false, "That batch failed.", "otto")
    assert [(one.kind, one.records, one.corrected) for one in loss_totals(falsely)] == [
        (LossKind.RECREATED, 1200, 4680)
    ]
    incident = Incident.objects.get()
    assert "Corrected: 4,680 records were not lost. That batch failed." in incident.detail
    (entry,) = incident.entries.filter(kind=EntryKind.CORRECTED)
    assert entry.text == "4,680 records were not lost. That batch failed."
    [trouble] = troubles([], now=NOW + timedelta(seconds=2))
    assert trouble.detail == (
        "1,200 records were never read; they are listed in the loss ledger. Another 4,680 "
        "entries were corrected: not lost."
    )
    correct(loss=Loss.objects.get(topic_id="old"), reason="Read.", actor="otto", now=NOW)
    assert troubles([], now=NOW + timedelta(seconds=2)) == []
    assert loss_totals(falsely) == []


def test_what_cannot_be_corrected_is_refused_with_the_reason(falsely: Query) -> None:
    false = Loss.objects.get(topic_id="new")
    with pytest.raises(Invalid):
        correct(loss=false, reason=" ", actor="otto", now=NOW)
    [line] = correct(loss=false, reason="It failed.", actor="otto", now=NOW)
    with pytest.raises(Conflict, match="already corrected"):
        correct(loss=false, reason="Twice.", actor="otto", now=NOW)
    with pytest.raises(NotAllowed, match="itself a correction"):
        correct(loss=line, reason="Back again.", actor="otto", now=NOW)


def test_a_batch_that_reads_a_record_at_each_offset_takes_the_entry_back(
    stage: Stage, falsely: Query
) -> None:
    """As after a reset to earliest. Of the topic that is gone it proves nothing."""
    _batch(stage, "delays", rows=6000, start=0, end=6000)
    keep_ledger(now=NOW + timedelta(seconds=9))
    assert _kept(falsely) == [*BOTH, (LossKind.CORRECTED, 0, 4680)]
    line = Loss.objects.get(kind=LossKind.CORRECTED)
    assert (line.batch, line.noted_by) == (1, "")
    assert line.note == "Batch 1 has read a record at each of these offsets."
    _batch(stage, "delays", rows=6000, start=0, end=6000, batch=2)
    keep_ledger(now=NOW + timedelta(seconds=9))
    assert Loss.objects.count() == 3


@pytest.mark.parametrize("rows", [5999, 12000])  # 12,000: the plan reads its source twice
def test_a_batch_whose_rows_are_not_its_offsets_proves_nothing(
    stage: Stage, falsely: Query, rows: int
) -> None:
    _batch(stage, "delays", rows=rows, start=0, end=6000)
    keep_ledger(now=NOW + timedelta(seconds=9))
    assert _kept(falsely) == BOTH


def test_what_was_taken_back_is_written_again_only_where_a_batch_shows_it(falsely: Query) -> None:
    false = Loss.objects.get(topic_id="new")
    correct(loss=false, reason="That batch failed.", actor="otto", now=NOW)
    gaps = [OffsetGap("flights", 0, 0, 4680)]
    kind, at = LossKind.SKIPPED, NOW
    assert write_gaps(query=falsely, gaps=gaps, kind=kind, now=at) == []
    assert len(write_gaps(query=falsely, gaps=gaps, kind=kind, now=at, corrected_too=True)) == 1
