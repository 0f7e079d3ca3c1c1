"""Weeks of schedules at random: each planned time has exactly one run, or one named skip.

The real task works on real rows. Its process is killed at any of its statements, the clock jumps
both ways, weeks contain a change to and from daylight saving, and the query ends, fails, is lost,
and is started and stopped by users meanwhile.
"""

import os
import random
import secrets
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from model_bakery import baker

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.cron import due_times
from queries.domain.schedules.planning import PlannedState
from queries.domain.states import Desired, Phase, RunOutcome
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.history import Operation
from queries.models.schedules import PlannedRun, ScheduleState
from queries.services.schedules import pauses, ticks
from tests.examples import examples
from tests.scenarios.stage import Stage

STEPS = int(os.environ.get("HEADGATE_SOAK_STEPS", "0")) or examples(1000)
SEED = int(os.environ.get("HEADGATE_SOAK_SEED", "0")) or secrets.randbelow(2**31)
#: A week begins two days before each change of the clocks in Berlin, or in summer.
BEGINS = [datetime(2026, month, day, tzinfo=UTC) for month, day in ((3, 27), (6, 1), (10, 23))]
WEEK = timedelta(days=7)
CRONS = ["30 2 * * *", "*/20 * * * *", "15 * * * *", "0 2,3 * * *", "5 1-3 * * 0", "* 2 * * *"]
_WRITES = ("INSERT", "UPDATE", "DELETE", "SAVEPOINT", "RELEASE")
_Step = Callable[["_Week"], None]


class Killed(BaseException):
    """The worker is killed; nothing of its process sees the next statement."""


@contextmanager
def killed_at(write: int) -> Iterator[None]:
    """Kill the process at its n-th statement that writes or ends a part of its transaction."""
    left = [write]

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(_WRITES):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        yield


class _Week:
    """One query with one schedule, in one week."""

    def __init__(self, dice: random.Random, number: int) -> None:
        self.dice = dice
        self.begin = BEGINS[number % len(BEGINS)]
        self.now = self.seen = self.begin
        self.schedule = Schedule(
            cron=dice.choice(CRONS),
            time_zone=dice.choice(["Europe/Berlin", "Europe/Berlin", "UTC"]),
            overlap=dice.choice(["skip", "queue"]),
            missed=dice.choice(["run_once", "skip"]),
            catch_up_window_s=dice.choice([600, 86_400]),
            timeout_s=dice.choice([0, 0, 1800]),
        )
        stage = Stage()
        stage.now = self.begin
        self.query = stage.query(
            f"week-{number}",
            trigger={"kind": "available_now"},
            schedule=self.schedule.model_dump(mode="json"),
        )
        self.driver = baker.make(
            Driver,
            application=self.query.application,
            application_revision=self.query.application.target_revision,
            epoch=number + 1,
            created_at=self.begin,
            state_since=self.begin,
        )
        ticks.follow_schedule(self.query.revisions.get())
        self.kills = 0
        #: All times of the week, and of the hours by which the clock may run past its end.
        self.times = due_times(self.schedule, self.begin, self.begin + 2 * WEEK)

    # --- steps ----------------------------------------------------------------------------
    def tick(self) -> None:
        """The task looks; now and then it is killed while it does."""
        at = self.dice.randrange(1, 14) if self.dice.random() < 0.4 else 0
        try:
            with killed_at(at):
                ticks.run_schedules(now=self.now)
        except Killed:
            self.kills += 1
        self.check()

    def wait(self) -> None:
        """Time passes: to the next planned time, or now and then hours without a worker."""
        due = ScheduleState.objects.get(query=self.query).next_at
        if self.dice.random() < 0.6 and due is not None and due >= self.now:
            self.now = due + timedelta(seconds=self.dice.randrange(30))
            return
        seconds = self.dice.choice([3, 20, 70, 300, 1200])
        self.now += timedelta(seconds=seconds if self.dice.random() < 0.98 else 6 * 3600)

    def jump(self) -> None:
        """The machine's clock is set, back or forth, not to before the schedule was saved."""
        minutes = self.dice.choice([-180, -61, -5, -1, 45, 200])
        self.now = max(self.begin, self.now + timedelta(minutes=minutes))

    def run(self) -> None:
        """The query's run starts, ends, fails, or its host stops responding."""
        row = Query.objects.get(pk=self.query.pk)
        if row.desired != Desired.RUNNING:
            self._phase(Phase.STOPPED if row.phase != Phase.COMPLETED else Phase.COMPLETED)
            return
        become = self.dice.choice([Phase.RUNNING] * 3 + [Phase.COMPLETED] * 3 + [Phase.BACKOFF])
        if self.dice.random() < 0.08:
            become = self.dice.choice([Phase.FAILED, Phase.ON_HOLD, Phase.UNREACHABLE])
        if become is Phase.RUNNING and not self._open():
            self._open_run(row.generation)
        self._phase(become)

    def user(self) -> None:
        """A user starts or stops the query."""
        start = self.dice.random() < 0.5
        Query.objects.filter(pk=self.query.pk).update(
            desired=Desired.RUNNING if start else Desired.STOPPED,
            phase=Phase.STARTING if start else Phase.STOPPING,
            generation=F("generation") + 1,
        )

    def pause(self) -> None:
        """A user pauses the schedule, or resumes it."""
        change = pauses.pause if self.dice.random() < 0.15 else pauses.resume
        change(self.query, actor="olga", now=self.now)
        waiting = PlannedRun.objects.filter(query=self.query, state=PlannedState.WAITING)
        assert change is pauses.resume or not waiting

    def _open(self) -> bool:
        return Run.objects.filter(query=self.query, outcome=RunOutcome.OPEN).exists()

    def _open_run(self, generation: int) -> None:
        newest = Run.objects.order_by("-epoch").values_list("epoch", flat=True).first() or 0
        Run.objects.create(
            query=self.query,
            driver=self.driver,
            epoch=newest + 1,
            checkpoint=self.query.checkpoints.get(),
            revision=self.query.revisions.get(),
            generation=generation,
            created_at=self.now,
            started_at=self.now,
        )

    def _phase(self, phase: Phase) -> None:
        changes: dict[str, Any] = {"phase": phase}
        if phase is Phase.COMPLETED:
            changes["desired"] = Desired.STOPPED
        Query.objects.filter(pk=self.query.pk).update(**changes)
        if phase not in (Phase.RUNNING, Phase.UNREACHABLE):
            Run.objects.filter(query=self.query, outcome=RunOutcome.OPEN).update(
                outcome=RunOutcome.STOPPED, ended_at=self.now
            )

    # --- what must hold -------------------------------------------------------------------
    def check(self) -> None:
        """Each planned time up to the cursor is in one row, and each start belongs to one.

        Later times have a row only if they had a run before the clock was set back.
        """
        cursor = ScheduleState.objects.get(query=self.query).cursor
        rows = list(PlannedRun.objects.filter(query=self.query).order_by("due_at"))
        handled = self.times[: bisect_right(self.times, cursor)]
        early = [row.due_at for row in rows if row.due_at > cursor]
        single = {row.due_at for row in rows if row.first_due_at is None}
        covered: list[datetime] = sorted(single)
        for row in rows:
            assert row.operation or row.due_at <= cursor or row.state == PlannedState.FAILED
            if row.first_due_at is not None:
                first = bisect_left(self.times, row.first_due_at)
                span = self.times[first : bisect_right(self.times, row.due_at)]
                within = [at for at in span if at not in single]
                assert len(within) == row.due_times > 1
                covered += within
        assert sorted(covered) == handled + early
        assert all((row.state == PlannedState.SKIPPED) == bool(row.skipped) for row in rows)
        starts = Operation.objects.filter(query=self.query, verb="start", actor="schedule")
        started = [row.operation_id for row in rows if row.operation_id is not None]
        assert sorted(started) == sorted(starts.values_list("pk", flat=True))
        states = Counter(row.state for row in rows)
        assert states[PlannedState.STARTED] <= 1
        assert states[PlannedState.WAITING] <= 1

    def end(self) -> None:
        """After the last look, no planned time of the week is without its row."""
        self.now = max(self.now, self.begin + WEEK)
        ticks.run_schedules(now=self.now)
        self.check()
        last = PlannedRun.objects.filter(query=self.query).order_by("-due_at").first()
        assert last is not None
        assert last.due_at >= self.times[bisect_right(self.times, self.now) - 1]


@pytest.mark.django_db
@pytest.mark.timeout(0)
def test_each_planned_time_of_weeks_has_one_run_or_a_named_skip() -> None:
    dice = random.Random(SEED)
    steps: list[tuple[_Step, int]] = [
        (_Week.tick, 34),
        (_Week.wait, 34),
        (_Week.run, 20),
        (_Week.user, 3),
        (_Week.pause, 4),
        (_Week.jump, 5),
    ]
    verbs, weights = zip(*steps, strict=True)
    taken = weeks = kills = 0
    found: Counter[str] = Counter()
    while taken < STEPS:
        with transaction.atomic():
            week = _Week(dice, weeks)
            while taken < STEPS and week.now < week.begin + WEEK:
                (verb,) = dice.choices(verbs, weights)
                verb(week)
                taken += 1
            week.end()
            rows = PlannedRun.objects.filter(query=week.query)
            for row in rows:
                found[f"{row.state} {row.skipped}".strip()] += row.due_times
            weeks, kills = weeks + 1, kills + week.kills
            transaction.set_rollback(True)
    told = f"seed {SEED}: {taken:,} steps, {weeks} weeks, {kills:,} kills; {dict(found)}\n"
    sys.stdout.write(told)
    assert kills
