"""Files that arrive start a query once they are all there; what cannot be listed is named."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from listeners.loops.backlogs import current
from queries.domain.states import Desired, Phase
from queries.models.definitions import Query
from queries.models.schedules import PlannedRun, ScheduleState
from queries.selectors.schedules import schedule_status
from queries.services import arrivals
from queries.services.arrivals import look_at_folders
from queries.services.schedules import ticks
from tests.scenarios.stage import Stage

ENDING: dict[str, Any] = {"trigger": {"kind": "available_now"}}


@pytest.fixture
def inbox(tmp_path: Path, settings: Any) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    settings.ALLOWED_PATHS = (str(tmp_path),)
    return folder


def _watching(stage: Stage, folder: Path, name: str = "orders", **more: Any) -> Query:
    schedule = {"files": str(folder), "quiet_period_s": 60, "poll_interval_s": 10, **more}
    query = stage.query(name, **ENDING, schedule=schedule)
    ticks.follow_schedule(query.revisions.get())
    return query


def _after(stage: Stage, seconds: int) -> list[str]:
    """Let time pass, look, and return the states of the planned runs."""
    stage.now += timedelta(seconds=seconds)
    look_at_folders(launcher=stage.launcher, now=stage.now)
    ticks.run_schedules(now=stage.now)
    rows = PlannedRun.objects.order_by("pk")
    return [f"{row.state} {row.skipped}".strip() for row in rows]


def test_files_start_the_query_once_no_more_of_them_arrive(stage: Stage, inbox: Path) -> None:
    query = _watching(stage, inbox)
    assert _after(stage, 10) == []
    (inbox / "a.json").write_text("{}")
    assert _after(stage, 10) == []  # noticed
    (inbox / "day=1").mkdir()
    (inbox / "day=1" / "b.json").write_text("{}")
    assert _after(stage, 50) == []  # another one: the wait begins again
    assert _after(stage, 30) == []
    assert _after(stage, 30) == ["STARTED"]
    Query.objects.filter(pk=query.pk).update(desired=Desired.STOPPED, phase=Phase.COMPLETED)
    (inbox / "a.json").unlink()  # as `cleanSource` does
    assert [_after(stage, 100) for _ in range(3)] == [["DONE"]] * 3


def test_files_that_arrive_during_the_run_start_the_next(stage: Stage, inbox: Path) -> None:
    query = _watching(stage, inbox, quiet_period_s=0)
    (inbox / "a.json").write_text("{}")
    assert _after(stage, 10) == ["STARTED"]
    (inbox / "b.json").write_text("{}")
    assert _after(stage, 10) == ["STARTED", "WAITING"]
    Query.objects.filter(pk=query.pk).update(desired=Desired.STOPPED, phase=Phase.COMPLETED)
    assert _after(stage, 10) == ["DONE", "STARTED"]


def test_an_overwritten_file_counts_as_new(stage: Stage, inbox: Path) -> None:
    _watching(stage, inbox, quiet_period_s=0)
    file = inbox / "a.json"
    file.write_text("{}")
    os.utime(file, (1_000_000, 1_000_000))
    _after(stage, 10)
    PlannedRun.objects.all().delete()
    os.utime(file, (2_000_000, 2_000_000))
    assert len(_after(stage, 10)) == 1


def test_a_folder_is_listed_at_its_interval(
    stage: Stage, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _watching(stage, inbox, poll_interval_s=300)
    listed: list[int] = []
    totals = arrivals._totals

    def counted(*given: Any) -> Any:
        listed.append(1)
        return totals(*given)

    monkeypatch.setattr(arrivals, "_totals", counted)
    for _ in range(60):
        _after(stage, 10)
    assert len(listed) == 2


@pytest.mark.parametrize("place", ["/etc", "outside"])
def test_a_folder_outside_the_data_roots_is_not_listed(
    stage: Stage, inbox: Path, tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    link = inbox / "link"
    link.symlink_to(tmp_path_factory.mktemp("elsewhere"))
    query = _watching(stage, Path(place) if place == "/etc" else link)
    _after(stage, 10)
    status = schedule_status(query, now=stage.now)
    assert "outside the allowed paths" in status.state.problem
    assert status.state.totals == {}


def test_a_folder_with_too_many_files_says_so(
    stage: Stage, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "MOST_FILES", 2)
    query = _watching(stage, inbox)
    for name in "abc":
        (inbox / name).write_text("")
    assert _after(stage, 10) == []
    assert "has more than 2 files" in schedule_status(query, now=stage.now).state.problem
    (inbox / "c").unlink()
    _after(stage, 10)
    assert schedule_status(query, now=stage.now).state.problem == ""


def test_a_folder_that_cannot_be_looked_at_keeps_no_other_from_being_listed(
    stage: Stage, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        _watching(stage, inbox, name)
    look = arrivals._look

    def rotten(state: ScheduleState, *more: Any) -> None:
        if state.query is not None and state.query.name == "a":
            raise RuntimeError("rotten")
        look(state, *more)

    monkeypatch.setattr(arrivals, "_look", rotten)
    look_at_folders(launcher=stage.launcher, now=stage.now)
    assert ScheduleState.objects.filter(looked_at=stage.now).count() == 2
    assert any("schedule of a" in str(one) for one in current(stage.now))


def test_a_folder_that_nobody_lists_makes_the_schedule_overdue(stage: Stage, inbox: Path) -> None:
    query = _watching(stage, inbox)
    assert not schedule_status(query, now=stage.now + timedelta(seconds=80)).overdue
    assert schedule_status(query, now=stage.now + timedelta(seconds=100)).overdue
