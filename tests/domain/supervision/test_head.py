"""The head of a query never says two things that cannot both be true."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queries.domain.definitions.spec import TriggerKind
from queries.domain.failures.crashes import CrashLoop
from queries.domain.readings import Dated
from queries.domain.reasons import Because, Detail
from queries.domain.states import JUDGED_PHASES, Desired, Phase, Reason, Verdict
from queries.domain.supervision.health.head import Head, HeadFacts, HeadTopic, compose
from queries.domain.supervision.health.verdicts import (
    ExecutedBatch,
    Health,
    HealthSignals,
    judge,
    judge_start,
)
from queries.domain.supervision.health.watermarks import Delay, WaitingRows, waiting
from tests.examples import examples

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
LOOP = CrashLoop(NOW - timedelta(minutes=5), NOW - timedelta(seconds=40), 6)
GONE = Dated("Topic flights does not exist.", NOW - timedelta(seconds=4))
WAITS = WaitingRows(NOW - timedelta(hours=1), 3, emits=True)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


past = st.integers(0, 1200).map(ago)
maybe_past = st.none() | past
batches = st.builds(
    ExecutedBatch, st.integers(0, 9), past, st.integers(0, 4000), st.integers(0, 99)
)
seen = st.builds(
    HealthSignals,
    now=st.just(NOW),
    trigger=st.sampled_from(list(TriggerKind)),
    interval_ms=st.sampled_from([0, 5000]),
    running_since=past,
    batches=st.lists(batches, max_size=7).map(lambda some: sorted(some, key=lambda one: one.at)),
    idle_at=maybe_past,
    last_event_at=maybe_past,
    heartbeat_at=maybe_past,
    jvm_alive=st.sampled_from([None, True, True, False]),
    query_alive=st.sampled_from([None, True, True, False]),
    commits_at=maybe_past,
    task_at=maybe_past,
    backlog=st.none() | st.integers(0, 9999),
    waiting=st.sampled_from([0, 0, 7]),
    partitions=st.just(3),
    unread=st.lists(st.tuples(past, past), max_size=2),
    arrival_rate=st.none() | st.floats(0, 100),
    unreachable_since=maybe_past,
    source_error=st.sampled_from([None, None, GONE]),
    committed=st.booleans(),
    waiting_state=st.none() | st.just(WAITS),
)
facts = st.builds(
    HeadFacts,
    now=st.just(NOW),
    desired=st.sampled_from(list(Desired)),
    phase=st.sampled_from(list(Phase)),
    reason=st.sampled_from([one for one in Reason if one]),
    detail=st.sampled_from([Because(), Because(Detail.GIVEN)]),
    failures=st.integers(0, 3),
    next_attempt_at=st.none() | st.integers(-60, 1800).map(lambda s: NOW + timedelta(seconds=s)),
    crash_loop=st.none() | st.just(LOOP),
    risk=st.sampled_from(["", "Has lost data."]),
    foreign=st.sampled_from(["", "Its checkpoint holds batches of another process."]),
    missing=st.integers(0, 3),
    unrepaired=st.integers(0, 3),
)


def head_of(seen: HealthSignals, facts: HeadFacts) -> tuple[Health | None, Head]:
    """Return what is judged in the phase, and what is said, as the selectors have it."""
    health = None
    if facts.phase in JUDGED_PHASES:
        health = judge(seen) if facts.phase is Phase.RUNNING else judge_start(seen)
    whole = replace(facts, health=health, unreachable_since=seen.unreachable_since)
    return health, compose(whole)


@settings(max_examples=examples(600))
@given(seen, facts)
def test_what_is_said_together_can_be_true_together(seen: HealthSignals, facts: HeadFacts) -> None:
    health, head = head_of(seen, facts)
    said = head.sentence
    verdict = health.verdict if health else None
    heard = (
        any(one.at > seen.unreachable_since for one in seen.batches)
        or (seen.idle_at is not None and seen.idle_at > seen.unreachable_since)
        if seen.unreachable_since
        else False
    )

    # The source answers the query, or it does not.
    assert not ("has not responded for" in said and "reaches its source" in said)
    assert not ("not reachable" in said and head.source_read)
    assert head.source_read <= heard
    if head.source_silent_since is not None:
        assert "not reachable" not in said, "said twice"
    quiet = {Verdict.IDLE, Verdict.PROGRESSING, Verdict.CATCHING_UP, Verdict.LAGGING}
    if seen.unreachable_since is not None and not heard:
        assert verdict not in quiet, "what cannot be read is neither read nor empty"
    # There is nothing to read, or what should be read is not there, or waits.
    since = [one.at + timedelta(milliseconds=one.duration_ms) for one in seen.batches[-1:]]
    newer = seen.source_error and seen.source_error.read_at > max(since, default=seen.running_since)
    assert not (verdict is Verdict.IDLE and (newer or seen.waiting))
    # A batch has committed, or none has.
    assert not ("first batch has committed" in said and not seen.committed)
    # An attempt is under way, or one is waited for.
    if head.next_attempt_at is not None:
        assert facts.phase in {Phase.BACKOFF, Phase.ON_HOLD}
        assert head.next_attempt_at > NOW
        assert health is None
    # Failures in a row go on, or are over.
    assert not (head.crash_loop and not facts.failures)
    assert not (head.retries and facts.phase in {Phase.RUNNING, Phase.STOPPED, Phase.COMPLETED})
    # Nothing is said twice.
    assert not (head.about is HeadTopic.RISK and head.risk)
    assert not (head.about is HeadTopic.FOREIGN and head.foreign)
    assert said


def running(**more: Any) -> HeadFacts:
    return HeadFacts(
        now=NOW, desired=Desired.RUNNING, phase=Phase.RUNNING, reason=Reason.COMMITTED, **more
    )


def health_seen(**more: Any) -> HealthSignals:
    return HealthSignals(
        now=NOW,
        trigger=TriggerKind.PROCESSING_TIME,
        interval_ms=5000,
        running_since=ago(600),
        **more,
    )


def test_a_source_that_answers_nobody_is_not_said_to_answer_the_query() -> None:
    found = judge(health_seen(unreachable_since=ago(18), idle_at=ago(25)))
    assert found.verdict is Verdict.WAITING
    assert "has not responded for 18 s" in found.reason
    assert "reaches its source" not in found.reason


def test_a_source_that_answers_the_query_alone_is_headgates_trouble() -> None:
    health, head = head_of(health_seen(unreachable_since=ago(18), idle_at=ago(2)), running())
    assert health is not None
    assert health.verdict is Verdict.IDLE
    assert "Headgate has not received a response from the source for 18 s" in head.sentence
    assert (head.about, head.source_read) == (HeadTopic.HEALTH, True)
    assert head.source_silent_since == ago(18)


def test_a_topic_that_is_gone_is_not_an_idle_source() -> None:
    batch = ExecutedBatch(12, ago(360), 10, 4)
    found = judge(health_seen(idle_at=ago(2), batches=[batch], source_error=GONE))
    assert found.verdict is Verdict.WAITING
    assert found.reason.startswith("Topic flights does not exist. No new data for 6 min")


@pytest.mark.guarantee("G-AGE-1")
def test_a_topic_is_gone_as_of_its_reading_and_until_the_query_has_read_since() -> None:
    old = replace(GONE, read_at=ago(540))
    seen = replace(health_seen(idle_at=ago(2), source_error=old), running_since=ago(9000))
    earlier = ExecutedBatch(12, ago(600), 10, 4)
    assert judge(replace(seen, batches=[earlier])).reason.startswith(
        "As of 02:51:00 UTC, 9 min ago: Topic flights does not exist. No new data for"
    )
    committed = judge(replace(seen, batches=[earlier, ExecutedBatch(13, ago(300), 10, 4)]))
    assert (committed.verdict, GONE.text in committed.reason) == (Verdict.IDLE, False)
    begun = judge(replace(seen, running_since=ago(60)))
    assert (begun.verdict, GONE.text in begun.reason) == (Verdict.IDLE, False)


def test_a_source_that_nobody_asked_lately_is_silent_as_of_then() -> None:
    facts = running(unreachable_since=ago(600), source_asked_at=ago(540))
    assert compose(facts).sentence == (
        "As of 02:51:00 UTC, 9 min ago: Source not reachable since 02:50:00 UTC."
    )


def test_what_only_idle_events_prove_has_not_committed() -> None:
    since = {"running_since": ago(40), "idle_at": ago(35), "last_event_at": ago(5)}
    seen = replace(health_seen(), **since, committed=False)  # type: ignore[arg-type]
    assert judge(seen).reason == "It has found no new data so far; no batch has committed yet."
    assert judge(replace(seen, committed=True)).reason == "Its first batch has committed."


def test_a_probe_that_is_under_way_has_no_next_attempt_beside_it() -> None:
    due = NOW + timedelta(minutes=29)
    broken = replace(running(next_attempt_at=due), phase=Phase.ON_HOLD)
    assert compose(broken).next_attempt_at == due
    assert compose(replace(broken, phase=Phase.STARTING)).next_attempt_at is None


def test_the_errors_before_a_new_start_are_not_its_own() -> None:
    old = replace(running(crash_loop=LOOP, failures=6), phase=Phase.BACKOFF)
    assert compose(old).crash_loop == LOOP
    assert compose(replace(old, failures=0, phase=Phase.PENDING)).crash_loop is None
    lasting = compose(replace(old, phase=Phase.RUNNING))
    assert (lasting.crash_loop, lasting.retries) == (LOOP, False)


@pytest.mark.parametrize(
    ("more", "about", "says"),
    [
        (
            {"unreachable_since": ago(30)},
            HeadTopic.SOURCE,
            "Source not reachable since 02:59:30 UTC.",
        ),
        ({"risk": "Has lost data."}, HeadTopic.RISK, "Has lost data."),
        ({"foreign": "Another process."}, HeadTopic.FOREIGN, "Another process."),
        (
            {"missing": 3, "unrepaired": 2},
            HeadTopic.GAPS,
            "2 of 3 missing batches are not repaired.",
        ),
        ({"health": Health(Verdict.IDLE, "Nothing.", None)}, HeadTopic.HEALTH, "Nothing."),
        ({}, HeadTopic.PHASE, "First commit"),
        ({"detail": Because(Detail.GIVEN)}, HeadTopic.PHASE, "The query is assigned to a driver."),
    ],
)
def test_the_topic_that_matters_most_is_said(more: Any, about: HeadTopic, says: str) -> None:
    head = compose(running(**more))
    assert (head.about, head.sentence) == (about, says)


# --- rows of state that wait --------------------------------------------------------------


def progress(rows: Any = 3, operator: str = "stateStoreSave", **more: Any) -> dict[str, Any]:
    told = {
        "eventTime": {"watermark": "2026-01-05T02:00:00.000Z"},
        "stateOperators": [{"operatorName": operator, "numRowsTotal": rows}],
    }
    return {**told, **more}


def test_an_idle_query_says_which_rows_wait_for_which_event() -> None:
    delay = Delay("at", timedelta(minutes=10))
    held = waiting(progress(), appends=True, delay=delay)
    seen = health_seen(
        idle_at=ago(2), batches=[ExecutedBatch(4, ago(90), 10, 4)], waiting_state=held
    )
    assert judge(seen).reason == (
        "No new data for 90 s; the last batch was 4. Its watermark is at 2026-01-05 02:00:00 "
        "UTC; 3 state rows wait for it to pass the end of their windows. It is waiting for a "
        "row whose at is later than 2026-01-05 02:10:00 UTC."
    )


@pytest.mark.parametrize(
    ("told", "appends", "says"),
    [
        (progress(1), True, "1 state row waits for it to pass the end of its window."),
        (progress(1), False, "1 state row is kept until it passes it."),
        (progress(2, "symmetricHashJoin"), True, "2 state rows are kept until it passes them."),
        (progress(2, "sessionWindowStateStoreSave"), True, "2 state rows wait for it to pass"),
    ],
)
def test_only_what_is_emitted_then_waits_for_its_window(
    told: dict[str, Any], appends: bool, says: str
) -> None:
    assert says in str(waiting(told, appends=appends, delay=None))
    assert "events later than those it has seen" in str(waiting(told, appends=appends, delay=None))


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        progress(0),
        progress(-1),
        progress("3"),
        progress(eventTime={}),
        progress(eventTime={"watermark": "1970-01-01T00:00:00.000Z"}),
        progress(eventTime={"watermark": "+58971-01-01T00:00:00.000Z"}),
        progress(eventTime=None),
        progress(stateOperators=None),
        progress(stateOperators=[None]),
    ],
)
def test_nothing_is_said_of_a_state_that_waits_for_nothing(told: dict[str, Any] | None) -> None:
    assert waiting(told, appends=True, delay=None) is None
