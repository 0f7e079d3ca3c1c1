"""A query of which something stored cannot be read: it is listed with less, the others whole."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from listeners.loops.backlogs import current
from listeners.models import Latest
from queries.domain.metrics import QueryFigures, samples_of
from queries.selectors.query_lines import query_line, query_lines
from queries.views import system
from tests.scenarios.stage import Stage

LATE = {
    "batchId": 4,
    "timestamp": "2026-11-25T10:00:00.000Z",
    "eventTime": {"watermark": "56971-10-25T00:00:00.000Z"},
    "stateOperators": [None],
    "numInputRows": -3,
    "inputRowsPerSecond": "NaN",
}


def _told(pk: int, progress: dict[str, Any]) -> None:
    now = timezone.now()
    of = {"driver": 1, "epoch": 1, "seq": 1, "run": 1, "progress_run": 1, "batch": 4}
    Latest.objects.create(query=pk, at=now, progress_at=now, progress=progress, **of)


@pytest.fixture
def rotten(stage: Stage) -> None:
    for name, progress in (
        ("arrivals", {"batchId": 3, "timestamp": "2026-11-25T10:00:00.000Z"}),
        ("delays", {"batchId": 4, "timestamp": "soon"}),  # stored by an earlier release
    ):
        _told(stage.query(name).pk, progress)


def test_a_query_whose_progress_cannot_be_read_is_listed_beside_the_others(
    client: Client, viewer: User, rotten: None
) -> None:
    found = {line.query.name: line.progress for line in query_lines(now=timezone.now())}
    assert found["delays"] is None
    assert found["arrivals"] is not None
    about = [one.about for one in current(datetime.now(UTC)) if one.loop == "lists of queries"]
    assert about == ["the line of delays"]
    client.force_login(viewer)
    for address in ("/queries/", "/queries/delays/", "/api/v1/queries/", "/metrics"):
        assert client.get(address).status_code == 200, address


def test_metrics_leave_out_the_query_that_cannot_be_counted(
    client: Client, viewer: User, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)

    def breaks(figures: QueryFigures, *, now: datetime) -> Any:
        if figures.name == "arrivals":
            raise KeyError("memory")
        return samples_of(figures, now=now)

    monkeypatch.setattr(system, "samples_of", breaks)
    monkeypatch.setattr(
        system, "query_figures", lambda *, now: map(_figures, ("arrivals", "delays"))
    )
    client.force_login(viewer)
    text = client.get("/metrics").content.decode()
    assert 'query="delays"' in text
    assert 'query="arrivals"' not in text


def _figures(name: str) -> QueryFigures:
    return QueryFigures(name, "app", {}, True, "RUNNING", None, "", None, 1, 0, 0)


def test_a_watermark_after_the_year_9999_names_its_column(
    client: Client, viewer: User, stage: Stage
) -> None:
    mark = {"column": "sched_dep", "delay": "10 minutes"}
    source = {"name": "flights", "format": "json", "options": {"path": "/in"}, "watermark": mark}
    _told(stage.query("delays", sources=[source]).pk, LATE)
    line = query_line("delays", now=timezone.now())
    assert line.progress is not None
    assert (line.progress.watermark, line.progress.num_input_rows) == (None, None)
    assert "the column sched_dep holds milliseconds" in line.progress.watermark_note
    client.force_login(viewer)
    text = client.get("/queries/delays/").content.decode()
    assert "after the year 9999" in text
    assert "the column sched_dep holds milliseconds" in text
    body = client.get("/api/v1/queries/delays/").json()
    assert "sched_dep" in body["last_progress"]["watermark_note"]
