"""What a look at the brokers writes: rows, risk, reach; one silent broker set holds no other."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from listeners.loops.backlogs import current
from listeners.models import Latest
from queries.brokers.reader import Unreachable
from queries.domain.kafka.retention import Retention
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Query, QueryRevision
from queries.models.drivers import Run
from queries.selectors.kafka import sources
from queries.selectors.kafka.lag import lag_of
from queries.services.kafka import lag
from queries.services.kafka.lag import look_at_sources
from tests.conftest_brokers import HOUR_MS, NOW, Brokers, MakeQuery, brokers, commit, make, said
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind

pytestmark = pytest.mark.django_db

__all__ = ["brokers", "make"]


def test_a_stopped_query_has_its_lag_its_clock_and_its_risk(
    make: MakeQuery, brokers: Brokers
) -> None:
    query = make("delays")
    brokers.said["one:9092"] = said({0: (0, 150), 1: (0, 100)}, written=NOW - timedelta(minutes=20))
    look_at_sources(now=NOW, readers=brokers)
    lag = lag_of(query, now=NOW)
    assert (lag.total.records, lag.total.seconds) == (50, 1200.0)
    assert lag.deleted_at == NOW + timedelta(minutes=40)
    query.refresh_from_db()
    assert query.risk.startswith(
        "Will lose data in 40 min unless the query runs: unread records of flights-0"
    )
    assert query.risk_at == NOW + timedelta(minutes=40)
    assert query.source_reachable is True
    assert brokers.read == [{("flights", 0): 100}]


def test_a_record_whose_time_is_known_is_not_read_again(make: MakeQuery, brokers: Brokers) -> None:
    query = make("delays")
    brokers.said["one:9092"] = said({0: (0, 150), 1: (0, 100)}, written=NOW)
    look_at_sources(now=NOW, readers=brokers)
    brokers.said["one:9092"] = said({0: (0, 250), 1: (0, 100)})
    later = NOW + timedelta(seconds=10)
    look_at_sources(now=later, readers=brokers)
    assert brokers.read[1] == {}
    row = SourceLag.objects.get(query=query, partition=0)
    assert (row.record_at, row.latest, row.arrival_rate) == (NOW, 250, 10.0)


def test_a_risk_goes_when_the_query_has_read_on(
    make: MakeQuery, brokers: Brokers, tmp_path: Path
) -> None:
    query = make("delays")
    brokers.said["one:9092"] = said({0: (0, 150), 1: (0, 100)}, written=NOW)
    look_at_sources(now=NOW, readers=brokers)
    commit(tmp_path / "delays", 1, {0: 150, 1: 100})
    look_at_sources(now=NOW + timedelta(seconds=5), readers=brokers)
    query.refresh_from_db()
    assert (query.risk, query.risk_at) == ("", None)


def test_a_broker_that_is_silent_keeps_the_numbers_and_the_clock_runs_on(
    make: MakeQuery, brokers: Brokers
) -> None:
    query, other = make("delays"), make("arrivals", server="two:9092")
    whole = said({0: (0, 150), 1: (0, 100)}, written=NOW)
    brokers.said = {"one:9092": whole, "two:9092": whole}
    look_at_sources(now=NOW, readers=brokers)
    brokers.said["one:9092"] = Unreachable("Connect to one:9092 failed: Connection refused")
    for minutes in (5, 10):
        look_at_sources(now=NOW + timedelta(minutes=minutes), readers=brokers)
    query.refresh_from_db()
    assert query.source_reachable is False
    assert query.source_unreachable_since == NOW + timedelta(minutes=5)
    assert "in 50 min" in query.risk
    lag = lag_of(query, now=NOW + timedelta(minutes=10))
    assert (lag.total.records, lag.seen_at, lag.read_at) == (
        *(50, NOW),
        NOW + timedelta(minutes=10),
    )
    assert lag.errors == ("Connect to one:9092 failed: Connection refused",)
    other.refresh_from_db()
    assert other.source_reachable is True
    assert lag_of(other, now=NOW).seen_at == NOW + timedelta(minutes=10)
    asked = f"{NOW + timedelta(minutes=10):%H:%M:%S}"
    assert lag_of(query, now=NOW + timedelta(minutes=19)).errors == (
        f"As of {asked} UTC, 9 min ago: Connect to one:9092 failed: Connection refused",
    )
    brokers.said["one:9092"] = whole
    look_at_sources(now=NOW + timedelta(minutes=15), readers=brokers)
    query.refresh_from_db()
    again = Query.objects.get(pk=query.pk)
    assert (again.source_reachable, again.source_unreachable_since) == (True, None)
    assert lag_of(query, now=NOW).errors == ()


def test_of_a_broker_that_never_answered_the_reason_is_shown(
    make: MakeQuery, brokers: Brokers
) -> None:
    query = make("delays", committed={})
    brokers.said["one:9092"] = Unreachable("Connection refused")
    look_at_sources(now=NOW, readers=brokers)
    look_at_sources(now=NOW, readers=brokers)
    assert lag_of(query, now=NOW).errors == ("Connection refused",)
    assert lag_of(query, now=NOW).topics == []
    brokers.said["one:9092"] = said({0: (0, 7)})
    look_at_sources(now=NOW, readers=brokers)
    assert [row.partition for row in SourceLag.objects.filter(query=query)] == [0]


def test_a_java_key_store_is_said_to_be_unreadable_not_the_source_unreachable(
    make: MakeQuery, brokers: Brokers
) -> None:
    options = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/etc/store.jks",
    }
    query = make("delays", options=options)
    look_at_sources(now=NOW, readers=brokers)
    query.refresh_from_db()
    assert query.source_reachable is None
    assert "JKS store, which only Java can read" in lag_of(query, now=NOW).errors[0]


def test_a_secret_that_is_missing_is_named_and_never_shown(
    make: MakeQuery, brokers: Brokers, settings: Any, tmp_path: Path
) -> None:
    settings.SECRETS_DIR = tmp_path
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "file:jaas",
    }
    bind("file:jaas", "delays", "one")
    query = make("delays", options=options)
    look_at_sources(now=NOW, readers=brokers)
    assert "file:jaas cannot be read" in lag_of(query, now=NOW).errors[0]
    (tmp_path / "jaas").write_text('X required username="u" password="s3cret-word";')
    brokers.said["one:9092"] = Unreachable("refused: s3cret-word")
    look_at_sources(now=NOW, readers=brokers)
    assert "s3cret-word" not in lag_of(query, now=NOW).errors[0]


def test_what_is_gone_is_written_down_at_once_where_spark_goes_on_in_silence(
    make: MakeQuery, brokers: Brokers
) -> None:
    strict, lenient = make("strict"), make("lenient", options={"failOnDataLoss": "false"})
    brokers.said["one:9092"] = said({0: (130, 150), 1: (0, 100)}, written=NOW)
    for _ in range(2):
        look_at_sources(now=NOW, readers=brokers)
    loss = Loss.objects.get()
    assert (loss.query, loss.kind) == (lenient, LossKind.SKIPPED)
    assert (loss.from_offset, loss.to_offset, loss.records) == (100, 130, 30)
    strict.refresh_from_db()
    assert strict.risk == (
        "Has lost data: 30 offsets of flights-0 were deleted before they were read."
    )


def test_a_topic_that_is_compacted_has_offsets_but_no_count_of_records(
    make: MakeQuery, brokers: Brokers
) -> None:
    make("lenient", options={"failOnDataLoss": "false"})
    kept = Retention(ms=HOUR_MS, compacts=True)
    brokers.said["one:9092"] = said({0: (130, 150)}, written=NOW, retention=kept)
    look_at_sources(now=NOW, readers=brokers)
    loss = Loss.objects.get()
    assert (loss.offsets, loss.records) == (30, None)


def test_a_query_that_reads_kafka_no_more_is_forgotten(make: MakeQuery, brokers: Brokers) -> None:
    query = make("delays")
    brokers.said["one:9092"] = said({0: (0, 150)}, written=NOW)
    look_at_sources(now=NOW, readers=brokers)
    spec = query.revisions.get(number=1).spec
    query.revisions.create(
        number=2,
        kind="sql",
        spec={**spec, "sources": [{"name": "flights", "format": "rate"}]},
        author="ada",
        created_at=NOW,
    )
    assert look_at_sources(now=NOW, readers=brokers) == 0
    query.refresh_from_db()
    assert (query.risk, query.source_reachable) == ("", None)
    assert not SourceLag.objects.exists()


def _run_of_code(stage: Stage) -> Run:
    """Return the run of a query whose code alone knows what it reads, with a batch reported."""
    stage.query("by-code", kind="python", function="m:f", sources=[])
    stage.up("by-code")
    run = stage.run("by-code")
    source = {
        "startOffset": {"flights": {"0": 40}},
        "endOffset": {"flights": {"0": 100}},
        "latestOffset": {"flights": {"0": 150}},
    }
    Latest.objects.create(
        query=run.query_id,
        driver=run.driver_id,
        epoch=run.epoch,
        seq=1,
        run=run.pk,
        at=NOW,
        batch=1,
        progress={"runId": run.spark_run_id, "sources": [source]},
        progress_run=run.pk,
    )
    return run


def test_of_a_query_whose_code_reads_kafka_its_progress_tells_while_it_runs(
    stage: Stage, brokers: Brokers
) -> None:
    run = _run_of_code(stage)
    look_at_sources(now=NOW, readers=brokers)
    lag = lag_of(run.query, now=NOW)
    assert (lag.total.records, lag.total.seconds, lag.deleted_at) == (50, None, None)
    stage.stop("by-code")
    Query.objects.filter(pk=run.query_id).update(phase="STOPPED")
    look_at_sources(now=NOW, readers=brokers)
    assert lag_of(run.query, now=NOW).topics == []


def test_a_topic_of_its_code_that_was_created_again_puts_a_query_at_risk(
    stage: Stage, brokers: Brokers
) -> None:
    run = _run_of_code(stage)
    stage.launcher.sees_topics(run.pk, {"flights": "a"})
    stage.wait(5)
    look_at_sources(now=NOW, readers=brokers)
    assert Query.objects.get(pk=run.query_id).risk == ""
    stage.launcher.sees_topics(run.pk, {"flights": "b"})
    stage.wait(5)
    look_at_sources(now=NOW, readers=brokers)
    query = Query.objects.get(pk=run.query_id)
    assert "Topic flights was deleted and recreated" in query.risk
    assert query.risk_at == NOW
    look_at_sources(now=NOW + timedelta(seconds=5), readers=brokers)
    assert Query.objects.get(pk=run.query_id).risk_at == NOW  # since when


def test_a_loss_that_grows_keeps_the_time_at_which_it_began(
    make: MakeQuery, brokers: Brokers
) -> None:
    query = make("delays")
    sentences = []
    for earliest, age_s in ((120, 0), (130, 300)):
        brokers.said["one:9092"] = said({0: (earliest, 150), 1: (0, 100)}, written=NOW)
        look_at_sources(now=NOW + timedelta(seconds=age_s), readers=brokers)
        query.refresh_from_db()
        sentences.append(query.risk)
        assert query.risk_at == NOW
    assert sentences[0] != sentences[1]


def test_a_query_whose_definition_cannot_be_read_leaves_out_itself_alone(
    make: MakeQuery, brokers: Brokers
) -> None:
    rotten, good = make("delays"), make("arrivals", server="two:9092")
    QueryRevision.objects.filter(query=rotten).update(
        spec={"sources": [{"format": "kafka", "options": {"subscribe": 7}}]}
    )
    brokers.said["two:9092"] = said({0: (0, 150), 1: (0, 100)}, written=NOW)
    assert look_at_sources(now=NOW, readers=brokers) == 1
    assert lag_of(good, now=NOW).total.records == 50
    [shown] = current(datetime.now(UTC))
    assert (shown.loop, shown.about) == ("look at sources", "the sources of delays")


def test_what_is_known_of_a_query_that_is_passed_over_is_kept(
    make: MakeQuery, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, good = make("delays"), make("arrivals", server="two:9092")
    whole = said({0: (0, 150), 1: (0, 100)}, written=NOW)
    brokers.said = {"one:9092": whole, "two:9092": whole}
    look_at_sources(now=NOW, readers=brokers)
    before = lag_of(query, now=NOW).total.records
    assert before
    real = sources.committed_at

    def committed_at(location: str) -> sources.Offsets:
        if "delays" in location:
            raise OperationalError("database is locked")
        return real(location)

    with monkeypatch.context() as patch:
        patch.setattr(sources, "committed_at", committed_at)
        assert look_at_sources(now=NOW, readers=brokers) == 1
    assert lag_of(query, now=NOW).total.records == before
    assert lag_of(good, now=NOW).total.records == 50
    [shown] = current(datetime.now(UTC))
    assert shown.about == "the offsets of delays"
    look_at_sources(now=NOW, readers=brokers)
    assert current(datetime.now(UTC)) == []


def test_a_query_whose_lag_cannot_be_written_leaves_out_itself_alone(
    make: MakeQuery, brokers: Brokers
) -> None:
    make("delays")
    good = make("arrivals", server="two:9092")
    whole = said({0: (0, 150), 1: (0, 100)}, written=NOW)
    brokers.said = {"one:9092": said({0: (0, 2**64)}), "two:9092": whole}
    assert look_at_sources(now=NOW, readers=brokers) == 2
    assert lag_of(good, now=NOW).total.records == 50
    [shown] = current(datetime.now(UTC))
    assert shown.about == "the lag of delays"


def test_a_broker_set_that_cannot_even_be_asked_holds_no_other(
    make: MakeQuery, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("delays")
    good = make("arrivals", server="two:9092")
    real = lag._answer

    def answer(one: Any, *rest: Any) -> Any:
        if "one:9092" in dict(one.brokers).values():
            raise OSError(24, "Too many open files")
        return real(one, *rest)

    monkeypatch.setattr(lag, "_answer", answer)
    brokers.said["two:9092"] = said({0: (0, 150), 1: (0, 100)}, written=NOW)
    look_at_sources(now=NOW, readers=brokers)
    assert lag_of(good, now=NOW).total.records == 50
    [shown] = current(datetime.now(UTC))
    assert shown.about == "brokers of delays"
