"""A running query has one verdict, with numbers that prove it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.spec import TriggerKind
from queries.domain.states import Verdict
from queries.domain.supervision.health.verdicts import (
    ExecutedBatch,
    HealthSignals,
    judge,
    judge_start,
    stalled_after,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def batches(
    *durations_ms: int,
    every_s: float = 10,
    rows: int = 100,
    end_s: float = 0,
) -> list[ExecutedBatch]:
    """Return batches that began `every_s` apart, the newest `end_s` + its duration ago."""
    newest = ago(end_s + durations_ms[-1] / 1000)
    count = len(durations_ms)
    return [
        ExecutedBatch(
            batch=index,
            at=newest - timedelta(seconds=every_s * (count - 1 - index)),
            duration_ms=duration,
            rows=rows,
        )
        for index, duration in enumerate(durations_ms)
    ]


BASE = HealthSignals(
    now=NOW,
    trigger=TriggerKind.PROCESSING_TIME,
    interval_ms=10_000,
    running_since=ago(600),
    batches=batches(1000, 1200, 900, 1100, 1000, end_s=4),
    last_event_at=ago(4),
    heartbeat_at=ago(2),
    jvm_alive=True,
    query_alive=True,
)
SLOW = batches(12_000, 12_500, 11_000, 12_000, 13_000, every_s=12)
#: Back to back: each reads 100 rows in 1 s.
ENDLESS = replace(BASE, interval_ms=0, batches=batches(*[1000] * 6, every_s=1))


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        ({}, Verdict.PROGRESSING, "Batch 4 took 1 s of the trigger's 10 s and read 100 rows"),
        ({"batches": ()}, Verdict.PROGRESSING, "first batch has committed"),
        ({"interval_ms": 0}, Verdict.PROGRESSING, "Batch 4 took 1 s and read"),
        ({"jvm_alive": False}, Verdict.QUERY_MISSING, "its JVM has ended"),
        ({"query_alive": False}, Verdict.QUERY_MISSING, "the query inside the driver has ended"),
        (
            {"jvm_alive": False, "query_alive": False},
            Verdict.QUERY_MISSING,
            "its JVM and the query inside the driver",
        ),
        ({"jvm_alive": None, "query_alive": None}, Verdict.PROGRESSING, "Batch 4"),
        ({"idle_at": ago(2)}, Verdict.IDLE, "No new data for 4 s; the last batch was 4"),
        ({"idle_at": ago(2), "batches": ()}, Verdict.IDLE, "since it started"),
        ({"idle_at": ago(8)}, Verdict.PROGRESSING, "Batch 4"),
        ({"idle_at": ago(200), "last_event_at": ago(100)}, Verdict.PROGRESSING, "Batch 4"),
        (
            {"batches": batches(1000, end_s=80), "last_event_at": ago(80)},
            Verdict.STALLED,
            "No batch, no event and no finished task for 80 s; the limit is 75 s. "
            "Its driver still sends heartbeats.",
        ),
        (
            {
                "batches": batches(1000, end_s=300),
                "last_event_at": ago(300),
                "heartbeat_at": ago(290),
            },
            Verdict.STALLED,
            "last heartbeat is 4 min old",
        ),
        (
            {"batches": batches(1000, end_s=80), "last_event_at": ago(80), "heartbeat_at": None},
            Verdict.STALLED,
            "the limit is 75 s.",
        ),
        (
            {"batches": batches(1000, end_s=80), "last_event_at": ago(80), "task_at": ago(3)},
            Verdict.PROGRESSING,
            "Batch 0",
        ),
        (
            {"batches": batches(60_000, end_s=130), "last_event_at": ago(130)},
            Verdict.PROGRESSING,
            "Batch 0 took 60 s",
        ),
        (
            {"batches": batches(1000, end_s=80), "last_event_at": ago(80), "commits_at": ago(3)},
            Verdict.NO_TELEMETRY,
            "No event for 80 s, but a commit was written to its checkpoint 3 s ago",
        ),
        (
            {"batches": batches(1000, end_s=80), "last_event_at": ago(80), "commits_at": ago(90)},
            Verdict.STALLED,
            "80 s",
        ),
        (
            {
                "batches": batches(1000, end_s=80),
                "last_event_at": ago(80),
                "task_at": ago(1),
                "commits_at": ago(3),
            },
            Verdict.NO_TELEMETRY,
            "No event for 80 s",
        ),
        ({"commits_at": ago(3)}, Verdict.PROGRESSING, "Batch 4"),
        (
            {"batches": SLOW},
            Verdict.LAGGING,
            "5 of the last 5 batches took longer than the trigger's 10 s (median 12 s)",
        ),
        ({"batches": SLOW[:2], "last_event_at": ago(1)}, Verdict.PROGRESSING, "Batch 1"),
        (
            {"batches": [*batches(900, 900), *SLOW[-3:]]},
            Verdict.LAGGING,
            "3 of the last 5",
        ),
        (
            {"batches": [*batches(900, 900, 900), *SLOW[-2:]]},
            Verdict.PROGRESSING,
            "Batch 4",
        ),
        (
            {"batches": [replace(each, rows=1000) for each in SLOW], "arrival_rate": 50.0},
            Verdict.CATCHING_UP,
            "Input 50 rows/s, processed 82.8 rows/s.",
        ),
        (
            {"batches": [replace(each, rows=1000) for each in SLOW], "arrival_rate": 90.0},
            Verdict.LAGGING,
            "Input 90 rows/s, processed 82.8 rows/s.",
        ),
        ({"batches": [replace(each, rows=0) for each in SLOW]}, Verdict.PROGRESSING, "0 rows"),
    ],
)
def test_a_verdict_comes_with_its_evidence(
    changes: dict[str, object], verdict: Verdict, says: str
) -> None:
    health = judge(replace(BASE, **changes))  # type: ignore[arg-type]
    assert health.verdict is verdict
    assert says in health.reason


def test_without_an_executor_nothing_progresses_whatever_the_last_batch_said() -> None:
    found = judge(replace(BASE, idle_cluster_since=ago(20)))
    assert (found.verdict, found.since) == (Verdict.STALLED, ago(20))
    assert found.reason.startswith("Its driver has had no executor for 20 s")
    assert judge(replace(BASE, idle_cluster_since=ago(5))).verdict is Verdict.PROGRESSING


def test_a_real_time_batch_lasts_its_whole_length_and_is_not_late() -> None:
    seen = replace(
        BASE,
        trigger=TriggerKind.REAL_TIME,
        interval_ms=5000,
        batches=batches(5092, 5088, 5101, 5090, 5093, every_s=5.1),
    )
    health = judge(seen)
    assert health.verdict is Verdict.PROGRESSING
    assert "the length of a real-time batch" in health.reason


@pytest.mark.parametrize("trigger", [TriggerKind.ONCE, TriggerKind.AVAILABLE_NOW])
def test_a_query_that_reads_all_there_is_and_ends_does_not_lag(trigger: TriggerKind) -> None:
    assert judge(replace(BASE, trigger=trigger, interval_ms=0, batches=SLOW)).verdict is (
        Verdict.PROGRESSING
    )


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        ({}, Verdict.PROGRESSING, "Batch 5 took 1 s and read 100 rows"),
        (
            {"backlog": 9000, "arrival_rate": 120.0},
            Verdict.LAGGING,
            "9,000 records are unread; the largest recent batch read 100. Input 120 rows/s, "
            "processed 100 rows/s.",
        ),
        ({"backlog": 9000, "arrival_rate": 99.0}, Verdict.LAGGING, "processed 100"),
        ({"backlog": 9000, "arrival_rate": 40.0}, Verdict.CATCHING_UP, "Input 40 rows/s"),
        ({"backlog": 200, "arrival_rate": 120.0}, Verdict.PROGRESSING, "Batch 5"),
        ({"backlog": 9000}, Verdict.PROGRESSING, "Batch 5"),
        ({"arrival_rate": 120.0}, Verdict.PROGRESSING, "Batch 5"),
        (
            {"backlog": 9000, "arrival_rate": 120.0, "batches": batches(1000, 1000)},
            Verdict.PROGRESSING,
            "Batch 1",
        ),
        (
            {"backlog": 9000, "arrival_rate": 120.0, "batches": batches(*[1000] * 3, every_s=0)},
            Verdict.PROGRESSING,
            "Batch 2",
        ),
        (
            {"backlog": 9000, "arrival_rate": 40.0, "trigger": TriggerKind.AVAILABLE_NOW},
            Verdict.CATCHING_UP,
            "Input 40 rows/s",
        ),
        (
            {"backlog": 9000, "arrival_rate": 120.0, "trigger": TriggerKind.AVAILABLE_NOW},
            Verdict.PROGRESSING,
            "Batch 5",
        ),
        (
            {"backlog": 9000, "arrival_rate": 120.0, "trigger": TriggerKind.CONTINUOUS},
            Verdict.LAGGING,
            "9,000 records are unread",
        ),
        (
            {"backlog": 9000, "arrival_rate": 120.0, "trigger": TriggerKind.REAL_TIME},
            Verdict.PROGRESSING,
            "Batch 5",
        ),
    ],
)
def test_without_an_interval_the_backlog_tells_what_lags_and_what_catches_up(
    changes: dict[str, object], verdict: Verdict, says: str
) -> None:
    health = judge(replace(ENDLESS, **changes))  # type: ignore[arg-type]
    assert health.verdict is verdict
    assert says in health.reason


#: It processed 100 rows/s until it was frozen; 9,000 records are unread.
FROZEN = replace(ENDLESS, backlog=9000, arrival_rate=40.0)


@pytest.mark.parametrize(
    ("silent_s", "changes", "verdict", "says"),
    [
        (14, {}, Verdict.CATCHING_UP, "Input 40 rows/s, processed 100 rows/s."),
        (16, {}, Verdict.LAGGING, "Since then, no batch, no event and no finished task for 16 s."),
        (59, {}, Verdict.LAGGING, "no batch, no event and no finished task for 59 s."),
        (61, {}, Verdict.STALLED, "No batch, no event and no finished task for 61 s"),
        (50, {"task_at": ago(3)}, Verdict.CATCHING_UP, "Input 40 rows/s"),  # one long batch
        (50, {"trigger": TriggerKind.AVAILABLE_NOW}, Verdict.PROGRESSING, "50 s ago"),
        (50, {"arrival_rate": 120.0}, Verdict.LAGGING, "processed 100 rows/s."),
    ],
)
def test_a_frozen_query_does_not_catch_up(
    silent_s: float, changes: dict[str, object], verdict: Verdict, says: str
) -> None:
    silent = replace(
        FROZEN,
        batches=batches(*[1000] * 6, every_s=1, end_s=silent_s),
        last_event_at=ago(silent_s),
        **changes,  # type: ignore[arg-type]
    )
    health = judge(silent)
    assert health.verdict is verdict
    assert says in health.reason


#: BASE's batches began 46, 36 … 5 s ago and took about a second.
@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        (
            {"unread": [(ago(40), NOW)] * 10},
            Verdict.LAGGING,
            "10 of 12 partitions hold records that no batch has read for 40 s.",
        ),
        ({"unread": [(ago(40), NOW)]}, Verdict.LAGGING, "1 of 12 partitions holds records"),
        ({"unread": [(ago(40), ago(35))]}, Verdict.PROGRESSING, "Batch 4"),
        ({"unread": [(ago(6), NOW)]}, Verdict.PROGRESSING, "Batch 4"),
        ({"unread": [(ago(40), NOW)], "batches": ()}, Verdict.PROGRESSING, "first batch"),
        (
            {"unread": [(ago(40), NOW)], "trigger": TriggerKind.REAL_TIME},
            Verdict.LAGGING,
            "It needs one core per source partition.",
        ),
        (
            {"unread": [(ago(40), NOW)], "trigger": TriggerKind.AVAILABLE_NOW, "interval_ms": 0},
            Verdict.PROGRESSING,
            "Batch 4",
        ),
        (
            {"unreachable_since": ago(2)},
            Verdict.WAITING,
            "Its source has not responded for 2 s; the query continues automatically once the "
            "source responds.",
        ),
        (
            {"unreachable_since": ago(2), "idle_at": ago(3)},
            Verdict.WAITING,
            "not responded for 2 s",
        ),
        ({"unreachable_since": ago(300), "batches": ()}, Verdict.WAITING, "for 5 min"),
        (
            {"unreachable_since": ago(20)},
            Verdict.PROGRESSING,
            "Batch 4 took 1 s of the trigger's 10 s and read 100 rows, 4 s ago. The query "
            "reaches its source, but Headgate has not received a response from the source "
            "for 20 s.",
        ),
        (
            {"unreachable_since": ago(3), "idle_at": ago(1)},
            Verdict.IDLE,
            "the last batch was 4. The query reaches its source,",
        ),
        (
            {"unreachable_since": ago(2), "jvm_alive": False},
            Verdict.QUERY_MISSING,
            "JVM has ended.",
        ),
        (
            {"idle_at": ago(2), "waiting": 2050, "backlog": 2050},
            Verdict.WAITING,
            "2,050 offsets are waiting for an open transaction.",
        ),
        ({"waiting": 2050}, Verdict.PROGRESSING, "Batch 4"),
        (
            {"idle_at": ago(2), "unread": [(ago(30), ago(1))]},
            Verdict.WAITING,
            "1 of 12 partitions holds unread records, but its triggers do not start a batch",
        ),
        (
            {"idle_at": ago(2), "unread": [(ago(30), ago(1))] * 2},
            Verdict.WAITING,
            "2 of 12 partitions hold unread records",
        ),
        ({"idle_at": ago(2), "unread": [(ago(1), ago(1))]}, Verdict.IDLE, "No new data"),
        ({"idle_at": ago(2), "unread": [(ago(30), ago(3))]}, Verdict.IDLE, "No new data"),
    ],
)
def test_a_verdict_does_not_contradict_what_the_sources_tell(
    changes: dict[str, object], verdict: Verdict, says: str
) -> None:
    health = judge(replace(BASE, partitions=12, **changes))  # type: ignore[arg-type]
    assert health.verdict is verdict
    assert says in health.reason


def test_what_an_open_transaction_holds_back_is_no_backlog() -> None:
    behind = replace(ENDLESS, backlog=9000, arrival_rate=120.0, unit="offsets")
    assert "9,000 offsets are unread" in judge(behind).reason
    held = judge(replace(behind, waiting=8900))
    assert held.verdict is Verdict.PROGRESSING


def test_epochs_without_rows_before_an_open_transaction_wait() -> None:
    empty = batches(*[1000] * 6, every_s=1, end_s=1, rows=0)
    held = replace(EPOCHS, batches=empty, waiting=7, partitions=1)
    assert judge(held).verdict is Verdict.WAITING
    unread = replace(held, waiting=0, unread=[(ago(30), ago(-1))])
    assert judge(unread).verdict is Verdict.WAITING


def test_as_fast_as_possible_is_not_late_by_the_length_of_its_batches() -> None:
    assert judge(replace(BASE, interval_ms=0, batches=SLOW)).verdict is Verdict.PROGRESSING


EPOCHS = replace(
    BASE,
    trigger=TriggerKind.CONTINUOUS,
    interval_ms=1000,
    batches=batches(1000, 1010, 990, 1000, 1005, 1000, every_s=1, end_s=1, rows=40),
    running_since=ago(900),
    last_event_at=ago(1),
)
SILENT = replace(EPOCHS, batches=batches(1000, every_s=1, end_s=200), last_event_at=ago(200))


def test_the_epochs_of_a_continuous_query_are_its_batches() -> None:
    going = judge(EPOCHS)
    assert going.verdict is Verdict.PROGRESSING
    assert going.reason == "Continuous epoch 5 read 40 rows in 1 s and committed 1 s ago."
    fresh = judge(replace(EPOCHS, batches=(), last_event_at=None, running_since=ago(3)))
    assert fresh.verdict is Verdict.PROGRESSING


def test_a_continuous_query_without_epochs_is_asked_for_its_cores() -> None:
    still = judge(SILENT)
    assert still.verdict is Verdict.STALLED
    assert "No continuous epoch for 3 min; the limit is 62 s" in still.reason
    assert "It needs one core per source partition." in still.reason


def test_a_continuous_query_that_commits_in_silence_is_blind() -> None:
    assert judge(replace(SILENT, commits_at=ago(1))).verdict is Verdict.NO_TELEMETRY
    assert judge(replace(SILENT, commits_at=ago(300))).verdict is Verdict.STALLED


def test_epochs_without_rows_are_idle_and_one_with_rows_is_not() -> None:
    empty = batches(*[1000] * 6, every_s=1, end_s=1, rows=0)
    read = replace(empty[0], rows=7)
    idle = judge(replace(EPOCHS, batches=[read, *empty[1:]]))
    assert idle.verdict is Verdict.IDLE
    assert idle.reason == "No new data for 6 s; continuous epochs continue, the last is 5."
    never = judge(replace(EPOCHS, batches=empty))
    assert never.since == EPOCHS.running_since
    busy = judge(replace(EPOCHS, batches=[*empty[:5], replace(empty[5], rows=1)]))
    assert busy.verdict is Verdict.PROGRESSING
    few = judge(replace(EPOCHS, batches=empty[2:5]))
    assert few.verdict is Verdict.PROGRESSING
    old = judge(replace(SILENT, batches=batches(*[1000] * 6, every_s=1, end_s=200, rows=0)))
    assert old.verdict is Verdict.STALLED


#: Spark has started it ten minutes ago, and its first batch has not committed.
STARTED = replace(BASE, batches=(), last_event_at=ago(598))


@pytest.mark.parametrize(
    ("changes", "verdict", "says"),
    [
        (
            {},
            Verdict.STALLED,
            "No batch, no event and no finished task for 9 min; the limit is 75 s. "
            "Its driver still sends heartbeats.",
        ),
        ({"task_at": ago(100)}, Verdict.STALLED, "for 100 s"),
        ({"task_at": ago(20)}, None, ""),
        ({"running_since": ago(70), "last_event_at": None}, None, ""),
        ({"interval_ms": 600_000}, None, ""),
        ({"query_alive": None}, None, ""),
        ({"query_alive": False}, Verdict.QUERY_MISSING, "the query inside the driver has ended"),
        ({"jvm_alive": False, "query_alive": None}, Verdict.QUERY_MISSING, "its JVM has ended"),
        ({"heartbeat_at": ago(50)}, Verdict.STALLED, "last heartbeat is 50 s old"),
        ({"heartbeat_at": ago(50), "task_at": ago(100)}, None, ""),
        (
            {"heartbeat_at": ago(80)},
            Verdict.NO_TELEMETRY,
            "No event and no heartbeat for 80 s: the progress of its first batch is unknown.",
        ),
        ({"heartbeat_at": None}, Verdict.NO_TELEMETRY, "No event and no heartbeat for 9 min"),
        ({"heartbeat_at": None, "last_event_at": ago(3)}, None, ""),
        ({"unreachable_since": ago(500)}, None, ""),
        (
            {"trigger": TriggerKind.CONTINUOUS},
            Verdict.STALLED,
            "It needs one core per source partition.",
        ),
    ],
)
def test_a_first_batch_is_judged_by_its_tasks(
    changes: dict[str, object], verdict: Verdict | None, says: str
) -> None:
    health = judge_start(replace(STARTED, **changes))  # type: ignore[arg-type]
    assert (health and health.verdict) == verdict
    assert says in (health.reason if health else "")


def test_a_long_silence_is_told_in_minutes_and_hours() -> None:
    quiet = replace(BASE, batches=(), last_event_at=ago(9000), running_since=ago(9000))
    assert "2 h" in judge(quiet).reason


@pytest.mark.parametrize(
    ("interval_ms", "durations", "seconds"),
    [(0, [100], 60), (10_000, [100], 75), (10_000, [60_000], 135), (2000, [500], 63), (0, [], 60)],
)
def test_patience_grows_with_the_trigger_and_with_slow_batches(
    interval_ms: int, durations: list[int], seconds: float
) -> None:
    some = batches(*durations) if durations else []
    seen = replace(BASE, interval_ms=interval_ms, batches=some)
    assert stalled_after(seen) == timedelta(seconds=seconds)


times = st.none() | st.integers(0, 100_000).map(ago)


@given(
    trigger=st.sampled_from(TriggerKind),
    interval_ms=st.integers(0, 10**7),
    durations=st.lists(st.integers(0, 10**7), max_size=8),
    rows=st.integers(0, 10**9),
    idle_at=times,
    last_event_at=times,
    heartbeat_at=times,
    commits_at=times,
    alive=st.none() | st.booleans(),
    backlog=st.none() | st.integers(0, 10**12),
    arrival_rate=st.none() | st.floats(0, 10**9),
    unread=st.lists(st.tuples(times.filter(bool), times.filter(bool)), max_size=3),
    unreachable_since=times,
    waiting=st.integers(0, 10**9),
)
def test_whatever_is_seen_has_a_verdict_with_a_sentence(
    trigger: TriggerKind,
    interval_ms: int,
    durations: list[int],
    rows: int,
    idle_at: datetime | None,
    last_event_at: datetime | None,
    heartbeat_at: datetime | None,
    commits_at: datetime | None,
    alive: bool | None,
    backlog: int | None,
    arrival_rate: float | None,
    unread: list[tuple[datetime, datetime]],
    unreachable_since: datetime | None,
    waiting: int,
) -> None:
    health = judge(
        HealthSignals(
            now=NOW,
            trigger=trigger,
            interval_ms=interval_ms,
            running_since=ago(600),
            batches=batches(*durations, rows=rows) if durations else [],
            idle_at=idle_at,
            last_event_at=last_event_at,
            heartbeat_at=heartbeat_at,
            commits_at=commits_at,
            jvm_alive=alive,
            backlog=backlog,
            arrival_rate=arrival_rate,
            unread=unread,
            partitions=3,
            unreachable_since=unreachable_since,
            waiting=waiting,
        )
    )
    assert health.reason.endswith(".")
    assert not (health.verdict is Verdict.IDLE and waiting)
    assert (health.verdict is Verdict.QUERY_MISSING) == (alive is False)
