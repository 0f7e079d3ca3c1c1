"""A topic that was deleted and recreated: at risk, counted once, and refused by go-on."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from queries.brokers.reader import BrokerLook
from queries.domain.errors import NotAllowed
from queries.domain.kafka.topic_ids import GONE, Remembered, ids_of
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.selectors.alerts.troubles import troubles
from queries.selectors.kafka.lag import lag_of
from queries.services.kafka import go_on_after_loss
from queries.services.kafka.go_on_after_loss import go_on
from queries.services.kafka.lag import look_at_sources
from tests.conftest_brokers import NOW, Brokers, MakeQuery, brokers, commit, make, said
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage

pytestmark = pytest.mark.django_db

__all__ = ["brokers", "make"]

LATER = NOW + timedelta(seconds=5)


def _said(ends: dict[int, tuple[int, int]], topic_id: str | None = "old") -> BrokerLook:
    return replace(said(ends), topic_ids={"flights": topic_id} if topic_id else {})


def _held(query: Query) -> Remembered | None:
    row = Checkpoint.objects.get(query=query, retired_at=None)
    return ids_of(row.topic_ids).get("flights", {}).get("flights")


def _look(brokers: Brokers, look: BrokerLook, *, after_s: float = 0) -> None:
    brokers.said["one:9092"] = look
    look_at_sources(now=NOW + timedelta(seconds=after_s), readers=brokers)


def _lost(query: Query) -> list[tuple[str, str, int | None, int | None, int | None]]:
    rows = Loss.objects.filter(query=query).order_by("pk")
    return [(r.kind, r.topic_id, r.partition, r.from_offset, r.to_offset) for r in rows]


@pytest.fixture
def delays(make: MakeQuery, brokers: Brokers) -> Query:
    """A strict query that has read 100 records of each partition of the old topic."""
    query = make("delays")
    _look(brokers, _said({0: (0, 100), 1: (0, 130)}))
    return query


def test_the_first_look_remembers_the_topic(delays: Query) -> None:
    assert _held(delays) == Remembered("old")


def test_a_topic_that_tells_no_id_is_not_called_the_same(delays: Query, brokers: Brokers) -> None:
    _look(brokers, _said({0: (0, 300), 1: (0, 300)}, None), after_s=5)
    assert _held(delays) == Remembered("old")
    _look(brokers, _said({0: (0, 300), 1: (0, 300)}, "new"), after_s=10)
    held = _held(delays)
    assert held is not None
    assert held.now == "new"


@pytest.mark.guarantee("G-LOSS-1")
@pytest.mark.parametrize("latest", [40, 100, 300])
def test_a_stopped_query_is_at_risk_and_has_all_of_the_new_topic_to_read(
    delays: Query, brokers: Brokers, latest: int
) -> None:
    for after_s in (5, 10):
        _look(brokers, _said({0: (0, latest), 1: (0, latest)}, "new"), after_s=after_s)
    delays.refresh_from_db()
    assert delays.risk.startswith("Topic flights was deleted and recreated")
    lag = lag_of(delays, now=LATER)
    assert lag.total.records == 2 * latest
    assert lag.gaps == []
    # No batch has read the new topic; what was unread of the old one is gone for certain.
    assert _lost(delays) == [(LossKind.RECREATED, "old", 1, 100, 130)]


def test_a_batch_that_never_committed_has_read_nothing(
    stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    """One partition of the new topic ends above the old offset, one below: strict Spark fails."""
    query = make("delays", committed={0: 4680, 1: 5000})
    stage.up("delays")
    _look(brokers, _said({0: (0, 5280), 1: (0, 5600)}))
    commit(tmp_path / "delays", 1, {0: 6000, 1: 100}, committed=False)
    _look(brokers, _said({0: (0, 6000), 1: (0, 100)}, "new"), after_s=5)
    assert _lost(query) == []  # its run may have fetched the rest of the old topic
    stage.fail("delays", replace(NO_SUCH_SOURCE, error_class="KAFKA_DATA_LOSS"))
    assert stage.phase("delays") == "FAILED"
    for after_s in (10, 15):
        _look(brokers, _said({0: (0, 6000), 1: (0, 100)}, "new"), after_s=after_s)
    assert _lost(query) == [
        (LossKind.RECREATED, "old", 0, 4680, 5280),
        (LossKind.RECREATED, "old", 1, 5000, 5600),
    ]
    [failed] = troubles([], now=NOW + timedelta(seconds=20))
    never = "1,200 records were never read; they are listed in the loss ledger."
    assert (failed.kind, failed.detail.endswith(f" {never}")) == ("failed", True)


def test_what_a_run_has_read_of_a_topic_that_is_gone_is_not_lost(
    stage: Stage, make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays", committed={0: 100})
    stage.up("delays")
    _look(brokers, _said({0: (0, 130)}))
    _look(brokers, _said({0: (0, 20)}, "new"), after_s=5)
    commit(tmp_path / "delays", 1, {0: 120})  # fetched before the topic was deleted
    run = stage.run("delays")
    stage.stop("delays")
    stage.launcher.end_run(run.pk)
    stage.look("delays")
    _look(brokers, _said({0: (0, 20)}, "new"), after_s=10)
    assert _lost(query) == [(LossKind.RECREATED, "old", 0, 120, 130)]


def test_a_look_that_finds_nothing_new_writes_no_checkpoint(
    delays: Query, brokers: Brokers
) -> None:
    for topic_id in ("old", "new"):
        _look(brokers, _said({0: (0, 300), 1: (0, 300)}, topic_id), after_s=5)
        with CaptureQueriesContext(connection) as seen:
            _look(brokers, _said({0: (0, 300), 1: (0, 300)}, topic_id), after_s=10)
        written = [one["sql"] for one in seen if 'UPDATE "queries_checkpoint"' in one["sql"]]
        assert written == []


def test_the_clock_of_the_old_topic_does_not_run_for_the_new_one(
    make: MakeQuery, brokers: Brokers
) -> None:
    query = make("delays", committed={0: 100})
    written = NOW - timedelta(minutes=20)
    _look(brokers, replace(said({0: (0, 150)}, written=written), topic_ids={"flights": "old"}))
    assert lag_of(query, now=NOW).deleted_at is not None
    _look(brokers, _said({0: (0, 150)}, "new"), after_s=5)
    assert lag_of(query, now=LATER).deleted_at is None


def test_other_partitions_are_another_topic_too(delays: Query, brokers: Brokers) -> None:
    _look(brokers, _said({0: (0, 500)}, "new"), after_s=5)
    delays.refresh_from_db()
    assert delays.risk.startswith("Topic flights was deleted and recreated")
    assert [row.partition for row in SourceLag.objects.filter(query=delays)] == [0]


def test_without_an_id_a_topic_that_ends_before_what_was_read_is_another_one(
    make: MakeQuery, brokers: Brokers
) -> None:
    query = make("delays")
    _look(brokers, _said({0: (0, 40), 1: (0, 100)}, None))
    query.refresh_from_db()
    assert query.risk.startswith("Topic flights was deleted and recreated")
    assert lag_of(query, now=NOW).total.records == 40


def test_a_topic_that_is_too_short_at_the_first_look_is_never_taken_for_the_one_read(
    make: MakeQuery, brokers: Brokers
) -> None:
    query = make("delays")
    _look(brokers, _said({0: (0, 40), 1: (0, 100)}, "new"))
    _look(brokers, _said({0: (0, 400), 1: (0, 400)}, "new"), after_s=5)
    held = _held(query)
    assert held is not None
    assert (held.id, held.now) == (GONE, "new")
    query.refresh_from_db()
    assert "recreated" in query.risk


@pytest.mark.parametrize("fails", ["true", "false"])
def test_what_a_running_query_reads_over_is_in_the_ledger_once(
    make: MakeQuery, brokers: Brokers, tmp_path: Path, fails: str
) -> None:
    query = make("delays", options={"failOnDataLoss": fails})
    _look(brokers, _said({0: (0, 100), 1: (0, 130)}))
    _look(brokers, _said({0: (0, 300), 1: (10, 300)}, "new"), after_s=5)
    commit(tmp_path / "delays", 1, {0: 300, 1: 300})
    for after_s in (10, 15):
        _look(brokers, _said({0: (0, 300), 1: (10, 300)}, "new"), after_s=after_s)
    assert _lost(query) == [
        (LossKind.RECREATED, "old", 1, 100, 130),
        (LossKind.RECREATED, "new", 0, 0, 100),
        (LossKind.RECREATED, "new", 1, 10, 100),
    ]
    query.refresh_from_db()
    held = _held(query)
    assert held is not None
    if fails == "true":  # it is not started on that checkpoint again
        assert (held.id, held.now, held.passed) == ("old", "new", 1)
        assert "recreated" in query.risk
    else:
        assert held == Remembered("new", 1)
        assert query.risk == ""
    assert lag_of(query, now=LATER).total.records == 0


def test_a_look_that_comes_after_the_batch_counts_the_same(
    make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays", options={"failOnDataLoss": "false"})
    _look(brokers, _said({0: (0, 100), 1: (0, 100)}))
    commit(tmp_path / "delays", 1, {0: 300, 1: 100})
    _look(brokers, _said({0: (0, 300), 1: (0, 100)}, "new"), after_s=5)
    assert _lost(query) == [
        (LossKind.RECREATED, "new", 0, 0, 100),
        (LossKind.RECREATED, "new", 1, 0, 100),
    ]


def test_what_was_unread_of_a_topic_that_was_missing_for_a_while_is_counted(
    make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays", options={"failOnDataLoss": "false"}, committed={0: 100})
    _look(brokers, _said({0: (0, 130)}))
    for after_s in (5, 10):
        _look(brokers, BrokerLook((), {}, {}), after_s=after_s)
    _look(brokers, _said({0: (0, 400)}, "new"), after_s=15)
    commit(tmp_path / "delays", 1, {0: 400})
    _look(brokers, _said({0: (0, 400)}, "new"), after_s=20)
    assert _lost(query) == [
        (LossKind.RECREATED, "old", 0, 100, 130),
        (LossKind.RECREATED, "new", 0, 0, 100),
    ]


def test_a_topic_that_spark_went_back_in_has_lost_only_what_is_before(
    make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays", options={"failOnDataLoss": "false"}, committed={0: 100})
    _look(brokers, _said({0: (0, 100)}))
    commit(tmp_path / "delays", 1, {0: 20})
    commit(tmp_path / "delays", 2, {0: 300})
    _look(brokers, _said({0: (0, 300)}, "new"), after_s=5)
    assert _lost(query) == [(LossKind.RECREATED, "new", 0, 0, 20)]
    assert _held(query) == Remembered("new", 1)


def test_offsets_of_the_old_topic_hide_none_of_the_new_one(
    make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays", options={"failOnDataLoss": "false"}, committed={0: 100})
    _look(brokers, _said({0: (150, 200)}))  # deleted unread: 100 to 150 of the old one
    commit(tmp_path / "delays", 1, {0: 200})
    _look(brokers, _said({0: (150, 200)}), after_s=5)
    _look(brokers, _said({0: (0, 400)}, "new"), after_s=10)
    commit(tmp_path / "delays", 2, {0: 400})
    _look(brokers, _said({0: (0, 400)}, "new"), after_s=15)
    assert _lost(query) == [
        (LossKind.SKIPPED, "old", 0, 100, 150),
        (LossKind.RECREATED, "new", 0, 0, 200),
    ]


def test_a_query_that_has_read_nothing_takes_whichever_topic_is_there(
    make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays", committed={})
    _look(brokers, _said({0: (0, 100)}))
    _look(brokers, _said({0: (0, 100)}, "new"), after_s=5)
    assert _held(query) == Remembered("new")
    # Its first offsets are chosen before the first batch: from then on the topic counts.
    place = tmp_path / "delays" / "sources" / "0"
    place.mkdir(parents=True)
    (place / "0").write_text('\0v1\n{"flights":{"0":100}}')
    _look(brokers, _said({0: (0, 100)}, "third"), after_s=10)
    held = _held(query)
    assert held is not None
    assert (held.id, held.now) == ("new", "third")


def test_a_driver_is_told_which_topics_the_checkpoint_has_read(
    stage: Stage, make: MakeQuery, brokers: Brokers
) -> None:
    make("delays")
    _look(brokers, _said({0: (0, 100), 1: (0, 100)}))
    stage.start("delays")
    entry = stage.launcher.assignment("delays").queries[0]
    assert entry.topic_ids == {"flights": ["old"]}


def test_go_on_refuses_what_it_cannot_go_over_and_names_a_way_that_works(
    delays: Query, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(**asked: Any) -> int:
        return look_at_sources(readers=brokers, **asked)

    monkeypatch.setattr(go_on_after_loss, "look_at_sources", look)
    brokers.said["one:9092"] = _said({0: (150, 300), 1: (150, 300)}, "new")
    with pytest.raises(NotAllowed, match="Topic flights was deleted") as refused:
        go_on(query=delays, offsets=100, actor="otto", now=LATER)
    assert "Reset the query to earliest" in str(refused.value.way_out)
    assert not Loss.objects.exclude(kind=LossKind.RECREATED).exists()
