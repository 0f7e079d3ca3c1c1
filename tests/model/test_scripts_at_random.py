"""An application with a script, walked at random: no step leaves the tables of phases.

Seeds are fixed, so a walk that fails can be walked again.
"""

import random
from pathlib import Path
from re import MULTILINE, findall
from typing import Any

import pytest

from queries.domain.states import STOPPED_PHASES, Phase, RunOutcome, StopMode
from queries.domain.supervision.phases import TRANSITIONS as OF_QUERIES
from queries.domain.supervision.script import TRANSITIONS
from queries.models.definitions import Query
from queries.models.drivers import Host, Run
from queries.models.history import Transition
from queries.services.supervision import application_operations as verbs
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scripts.md"
STEPS = 40
NAMES = ("one", "two", "")


def test_the_diagram_of_a_script_shows_exactly_the_transitions_of_the_code() -> None:
    text = PAGE.read_text()
    diagram = text[text.index("stateDiagram-v2") : text.index("```", text.index("stateDiagram-v2"))]
    drawn = set(findall(r"^\s*([A-Z_]+) --> ([A-Z_]+)", diagram, MULTILINE))
    assert drawn == {(before.value, after.value) for before, after in TRANSITIONS}


class _Walk:
    """One walk: a step, then what must hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stage = ScriptStage()
        self.told = 0

    def step(self) -> str:
        acts = [name for name in dir(self) if name.startswith("do_")]
        name = self.random.choice(acts)
        try:
            getattr(self, name)()
        except LookupError:  # nothing is there for it
            return f"{name} (nothing to do)"
        self.stage.look("job")
        self.check(name)
        return name

    # --- what people do, and what happens -----------------------------------------------

    def do_start(self) -> None:
        self.stage.start_script()

    def do_stop(self) -> None:
        self.stage.stop_script(self.random.choice(list(StopMode)))

    def do_restart(self) -> None:
        verbs.request_application_restart(
            application=self.stage.job, actor="olga", now=self.stage.now
        )

    def do_ready(self) -> None:
        self._alive()
        self.stage.launcher.ready("job")

    def do_find(self) -> None:
        driver = self._running()
        name = self.random.choice(NAMES)
        known = {one.name for one in driver.found.values()}
        if name in known:
            raise LookupError(name)
        self.stage.launcher.finds("job", name)

    def do_commit(self) -> None:
        self.stage.launcher.commit(self._run().pk)

    def do_idle(self) -> None:
        self.stage.launcher.idle(self._run().pk)

    def do_fail_query(self) -> None:
        self.stage.launcher.fail_run(self._run().pk, BROKEN_PIPE, batch=3)

    def do_end_query(self) -> None:
        self.stage.launcher.end_run(self._run().pk)

    def do_fail_script(self) -> None:
        self._running()
        error = self.random.choice([BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE])
        self.stage.launcher.script_fails("job", error, batch=self.random.choice([None, 7]))

    def do_complete(self) -> None:
        self._running()
        self.stage.launcher.script_completes("job")

    def do_leave(self) -> None:
        self._alive()
        if not self.stage.launcher.assignment("job").end:
            raise LookupError
        self.stage.launcher.leave("job")

    def do_die(self) -> None:
        self._alive()
        self.stage.launcher.die("job")

    def do_vanish(self) -> None:
        self._alive()
        self.stage.launcher.vanish("job")

    def do_wait(self) -> None:
        self.stage.wait(self.random.choice([1, 30, 400, 1900]))

    def do_pause(self) -> None:
        host = Host.objects.filter(name=self.stage.job.host).first()
        if host is not None:
            host.delete()
            return
        if not self.stage.job.host:
            raise LookupError
        now = self.stage.now
        Host.objects.create(name=self.stage.job.host, seen_at=now, stopping_since=now)

    # --- what must hold -----------------------------------------------------------------

    def check(self, step: str) -> None:
        stage = self.stage
        rows = Transition.objects.filter(subject="phase", pk__gt=self.told).order_by("pk")
        for row in rows:
            self.told = row.pk
            allowed = TRANSITIONS if row.query_id is None else OF_QUERIES
            pair = (Phase(row.before), Phase(row.after))
            assert pair in allowed, f"{step}: {row.query or 'script'} {pair}"
        assert len(stage.launcher.living()) <= 1
        script = stage.script
        open_runs = Run.objects.filter(outcome=RunOutcome.OPEN)
        if script.phase in STOPPED_PHASES:
            assert not open_runs.exists(), step
            assert not stage.launcher.living(), step
        for query in Query.objects.all():
            at_rest = query.phase in STOPPED_PHASES
            assert (query.desired == "STOPPED") == at_rest, f"{step}: {query.phase}"

    # --- what is there ------------------------------------------------------------------

    def _alive(self) -> None:
        if not self.stage.launcher.living():
            raise LookupError("no driver lives")

    def _running(self) -> Any:
        self._alive()
        driver = self.stage.launcher._driver("job", None)
        if not driver.ready or self.stage.launcher.assignment("job").end:
            raise LookupError("no script runs")
        return driver

    def _run(self) -> Run:
        self._running()
        runs = [
            run
            for run in Run.objects.filter(outcome=RunOutcome.OPEN).order_by("pk")
            if self.stage.launcher.has(run.pk)
        ]
        if not runs:
            raise LookupError("no query runs")
        return self.random.choice(runs)


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(6))
def test_a_script_walked_at_random_stays_within_its_table(seed: int) -> None:
    walk = _Walk(seed)
    for _ in range(STEPS):
        walk.step()
    stage = walk.stage
    Host.objects.all().delete()
    stage.stop_script(StopMode.NOW)
    if stage.launcher.living():
        stage.launcher.leave("job")
    stage.look("job")
    stage.wait(60)
    assert stage.script.phase in STOPPED_PHASES
