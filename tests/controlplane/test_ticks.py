"""The table of ticks, when each is due, and when it counts as late: without threads or clocks."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from django.utils.module_loading import import_string
from hypothesis import given
from hypothesis import strategies as st

from controlplane.ticks import (
    FIRST_AFTER_S,
    LATE_INTERVALS,
    TICKS,
    Tick,
    TickReport,
    TickRun,
    late_ticks,
    next_due,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SILENT = timedelta(seconds=15)
OFTEN, RARE = Tick("a.often", 5.0), Tick("a.rare", 3600.0)
LED = Tick("a.led", 5.0, by_leader=True)


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


# --- the table --------------------------------------------------------------------------------
def test_each_tick_is_a_function_without_arguments_and_has_a_name_of_its_own() -> None:
    assert len({tick.name for tick in TICKS}) == len(TICKS)
    for tick in TICKS:
        assert import_string(tick.function).__code__.co_argcount == 0


def test_a_thread_is_the_hosts_or_the_leaders() -> None:
    scopes = defaultdict(set)
    for tick in TICKS:
        scopes[tick.thread or tick.name].add(tick.by_leader)
    assert all(len(found) == 1 for found in scopes.values())


@pytest.mark.parametrize(
    "name",
    [
        *("sweep", "advance_operations", "advance_deploys", "send_alerts", "recheck_sql"),
        *("look_at_sources", "look_at_tables", "look_at_folders", "look_for_foreign_batches"),
        "call_outside",
    ],
)
def test_the_sweep_and_what_may_hang_have_threads_of_their_own(name: str) -> None:
    [tick] = [tick for tick in TICKS if tick.name == name]
    assert tick.thread == ""


def test_what_is_about_a_hosts_files_and_processes_is_done_on_each_host() -> None:
    led = {tick.name for tick in TICKS if tick.by_leader}
    assert led == {
        *("run_schedules", "note_verdicts", "watch_incidents", "send_alerts", "recheck_sql"),
        *("call_outside", "keep_ledger", "chain_audit_log", "expire", "forget_old_incidents"),
        *("forget_expired_tokens", "prune_audit_log"),
    }


# --- when a tick is due -----------------------------------------------------------------------
def test_a_tick_is_due_an_interval_after_its_last_run_has_ended() -> None:
    assert next_due([OFTEN], begun=0.0, ended={"often": 100.0}) == (OFTEN, 105.0)


def test_the_first_runs_follow_the_beginning_and_none_waits_for_an_hour() -> None:
    assert next_due([OFTEN], begun=10.0, ended={}) == (OFTEN, 15.0)
    assert next_due([RARE], begun=10.0, ended={}) == (RARE, 10.0 + FIRST_AFTER_S)


@given(
    every=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    took=st.lists(st.integers(0, 300), min_size=1, max_size=60),
)
def test_however_long_the_runs_take_each_tick_gets_its_turn(
    every: list[int], took: list[int]
) -> None:
    """One that is late runs late, and is never passed over by another twice."""
    ticks = [Tick(f"a.t{number}", float(one)) for number, one in enumerate(every)]
    now = 0.0
    ended: dict[str, float] = {}
    passed = dict.fromkeys((tick.name for tick in ticks), 0)
    for seconds in took:
        tick, due = next_due(ticks, begun=0.0, ended=ended)
        now = max(now, due)
        for other in ticks:
            is_due = next_due([other], begun=0.0, ended=ended)[1] <= now
            passed[other.name] = passed[other.name] + 1 if is_due and other is not tick else 0
            assert passed[other.name] < len(ticks)
        now += seconds
        ended[tick.name] = now


# --- when it is late --------------------------------------------------------------------------
def late(*reports: TickReport, ticks: tuple[Tick, ...] = (OFTEN,)) -> list[tuple[str, str, bool]]:
    found = late_ticks(reports, now=NOON, silent_after=SILENT, ticks=ticks)
    return [(one.tick.name, one.host, one.is_running) for one in found]


def report(
    host: str = "here", *, at: float = 1, begun: float = 1000, **runs: TickRun
) -> TickReport:
    return TickReport(host, ago(at), ago(begun), runs)


def ended(seconds_ago: float) -> TickRun:
    return TickRun(ago(seconds_ago + 1), ago(seconds_ago))


def test_a_tick_is_late_five_intervals_after_it_was_due() -> None:
    limit = OFTEN.every_s * (1 + LATE_INTERVALS)
    assert late(report(often=ended(limit))) == []
    assert late(report(often=ended(limit + 1))) == [("often", "here", False)]


def test_a_tick_that_has_never_run_is_late_as_well() -> None:
    assert late(report(begun=30)) == []
    assert late(report(begun=31)) == [("often", "here", False)]


def test_a_run_that_does_not_end_is_late_once_it_takes_longer_than_it_may() -> None:
    assert late(report(often=TickRun(ago(60), ago(70)))) == []
    assert late(report(often=TickRun(ago(61), ago(70)))) == [("often", "here", True)]
    assert late(report(often=TickRun(ago(61)))) == [("often", "here", True)]


def test_a_worker_that_is_silent_is_not_judged_by_its_old_times() -> None:
    assert late(report(at=16, often=ended(500))) == []


def test_a_worker_that_has_just_begun_is_not_judged_by_the_night() -> None:
    night = report("there", at=30_000, begun=90_000, led=ended(30_000))
    assert late(night, report(begun=3), ticks=(LED,)) == []


def test_of_the_leaders_ticks_the_newest_run_counts_whoever_ran_it() -> None:
    followed = report("b", led=ended(900))
    assert late(followed, report("a", led=ended(2)), ticks=(LED,)) == []
    assert late(followed, report("a", led=ended(31)), ticks=(LED,)) == [("led", "a", False)]


def test_what_a_killed_leader_ran_counts_until_another_one_has_run_it() -> None:
    killed = report("a", at=20, led=ended(20))
    assert late(killed, report("b"), ticks=(LED,)) == []
    killed = report("a", at=40, led=ended(40))
    assert late(killed, report("b"), ticks=(LED,)) == [("led", "", False)]


def test_the_run_in_which_a_leader_was_killed_is_not_judged() -> None:
    killed = report("a", at=100, led=TickRun(ago(100), ago(110)))
    assert late(killed, report("b", led=ended(1)), ticks=(LED,)) == []
