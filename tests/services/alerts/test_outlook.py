"""What is about to go wrong is noted in the rows, and told of, without anybody looking."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from listeners.models import Progress
from queries.domain.alerts.forms import IncidentKind, IncidentState
from queries.domain.probes.preflight import digest
from queries.domain.states import OperationOutcome, Verb
from queries.domain.system import SystemHealth
from queries.models.alerts import Incident
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.selectors.checkpoints import state_history
from queries.services.alerts import figures, incidents
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import Stage
from tests.web.batches import batches

MB = 1_000_000

#: More than a round takes on a busy machine; these tests are not about the real limit.
UNHURRIED_S = 120


@pytest.fixture(autouse=True)
def _healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "system_health", lambda now: SystemHealth(now, ()))


def _look(stage: Stage) -> dict[str, str]:
    """Look ahead, then for troubles; return the open incidents: kind -> evidence."""
    figures.look_ahead(now=stage.now, limit_s=UNHURRIED_S)
    incidents.watch_incidents(now=stage.now)
    return dict(Incident.objects.filter(state=IncidentState.OPEN).values_list("kind", "detail"))


def _state(stage: Stage, name: str, *, start_mb: int, per_minute_mb: int) -> None:
    """Let a running query have reported its state each minute for two hours."""
    Progress.objects.all().delete()
    run = stage.run(name)
    for place, row in enumerate(batches(run, 120, until=stage.now, every_s=60.0, duration_ms=500)):
        size = (start_mb + place * per_minute_mb) * MB
        row.state_rows = place + 1
        row.body["stateOperators"] = [{"numRowsTotal": place + 1, "memoryUsedBytes": size}]
        row.save()


def test_state_that_fills_the_memory_within_hours_is_an_incident(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    _state(stage, "delays", start_mb=200, per_minute_mb=4)
    found = _look(stage)
    assert found.keys() == {IncidentKind.STATE_LIMIT}
    assert "its state will fill the driver's memory at" in found[IncidentKind.STATE_LIMIT]

    _state(stage, "delays", start_mb=200, per_minute_mb=0)
    stage.now += timedelta(hours=1)
    _look(stage)
    assert stage.row("delays").state_full_at is None


def test_a_limit_that_is_days_away_wakes_nobody(stage: Stage, settings: Any) -> None:
    settings.ALERT_STATE_FULL_HOURS = 0
    stage.query("delays")
    stage.up("delays")
    _state(stage, "delays", start_mb=200, per_minute_mb=4)
    assert _look(stage) == {}
    assert stage.row("delays").state_full_at is not None


def test_a_replay_beyond_the_bound_is_an_incident(
    stage: Stage, tmp_path: Path, settings: Any
) -> None:
    flights = AsyncQuery(stage, tmp_path)
    flights.up()
    run = stage.run("flights")
    batches(run, 9, until=stage.now, first=113, every_s=1.0, duration_ms=500, rows=20)
    settings.ALERT_REPLAY_RECORDS = 1_000
    assert _look(stage) == {}
    settings.ALERT_REPLAY_RECORDS = 100
    records = stage.row("flights").replay_records
    assert records is not None
    assert records > 100
    assert f"{records:,} records" in _look(stage)[IncidentKind.REPLAY]

    stage.stop("flights")
    figures.look_ahead(now=stage.now, limit_s=UNHURRIED_S)
    assert stage.row("flights").replay_records is None


def test_a_revision_that_fails_the_required_preflight_is_an_incident(stage: Stage) -> None:
    query = stage.query("delays")
    stage.up("delays")
    stage.commit("delays")
    application = query.application.revisions.get()
    application.spec |= {"require_preflight": True}
    application.save()
    assert _look(stage) == {}
    spec = query.revisions.get().spec | {"sql": "SELECT nothing FROM flights"}
    query.revisions.create(number=2, kind="sql", spec=spec, author="ada", created_at=stage.now)
    assert _look(stage) == {}  # it has not been tried
    tried = Operation.objects.create(
        verb=Verb.PREFLIGHT,
        query=query,
        application=query.application,
        generation=0,
        actor="ada",
        created_at=stage.now,
        deadline=stage.now,
        arguments={"digest": digest(spec)},
        outcome=OperationOutcome.FAILED,
    )
    assert "a restart would be rejected" in _look(stage)[IncidentKind.PREFLIGHT_FAILING]
    tried.delete()
    figures.look_ahead(now=stage.now, limit_s=UNHURRIED_S)
    assert not stage.row("delays").preflight_fails


def test_one_rotten_query_keeps_no_other_from_being_looked_at(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("alpha", "beta"):
        stage.query(name)
        stage.up(name)
        _ = stage.run(name)
    _state(stage, "beta", start_mb=200, per_minute_mb=4)
    real = state_history

    def rotten(query: Any, *, now: Any) -> Any:
        if query.name == "alpha":
            raise ValueError("rotten")
        return real(query, now=now)

    monkeypatch.setattr("queries.services.alerts.figures.state_history", rotten)
    figures.look_ahead(now=stage.now, limit_s=UNHURRIED_S)
    assert stage.row("beta").state_full_at is not None


# --- a thousand queries -------------------------------------------------------------------


def test_a_look_that_has_no_time_left_goes_on_with_the_next_query(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("one", "two", "three")
    for name in names:
        stage.query(name)
        stage.up(name)
    looked: list[str] = []

    def look(query: Query, now: datetime) -> bool:
        looked.append(query.name)
        return False

    monkeypatch.setattr(figures, "_look", look)
    place = figures.Round()
    for number in range(3):
        figures.look_ahead(now=stage.now, limit_s=0, place=place)
        assert looked == list(names[: number + 1])
    # This round finds that it was the last.
    figures.look_ahead(now=stage.now, place=place, limit_s=UNHURRIED_S)
    figures.look_ahead(now=stage.now + timedelta(seconds=59), place=place, limit_s=UNHURRIED_S)
    assert looked == list(names)
    figures.look_ahead(now=stage.now + timedelta(seconds=61), place=place, limit_s=UNHURRIED_S)
    assert looked == [*names, *names]


def test_a_query_that_cannot_be_looked_at_does_not_keep_the_round_from_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        stage.query(name)
        stage.up(name)
    looked: list[str] = []

    def look(query: Query, now: datetime) -> bool:
        looked.append(query.name)
        raise OSError("no such folder")

    monkeypatch.setattr(figures, "_look", look)
    place = figures.Round()
    for _ in range(2):
        figures.look_ahead(now=stage.now, limit_s=0, place=place)
    assert looked == ["one", "two"]
