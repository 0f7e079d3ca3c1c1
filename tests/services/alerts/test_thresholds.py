"""Crossed thresholds of queries and of rules are incidents, from the stored figures."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from listeners.models import Latest, Rollup
from listeners.models import Trouble as LoopTrouble
from queries.domain.alerts.forms import IncidentKind, IncidentState
from queries.domain.alerts.incidents import QUIET_BEFORE_CLOSING
from queries.domain.alerts.thresholds import Crossing
from queries.domain.definitions.spec import Threshold
from queries.domain.states import LossKind
from queries.domain.system import SystemHealth
from queries.models.alerts import AlertRule, FigureSample, Incident, Maintenance
from queries.models.checkpoints import TABLE, Loss, SourceLag
from queries.models.definitions import Query
from queries.selectors.alerts.thresholds import crossed_thresholds, preview, threshold_status
from queries.selectors.kafka.lag import lag_lines
from queries.services.alerts import incidents as service
from queries.services.alerts.figures import KEPT, sample_figures
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

BEHIND = {"figure": "records_behind", "value": 1_000_000}


class Limits(Stage):
    """A stage with running queries that have thresholds."""

    def __init__(self) -> None:
        super().__init__(obliging=True)
        self.now = self.now.replace(second=0, microsecond=0)

    def running(self, name: str, *thresholds: dict[str, Any]) -> Query:
        self.query(name)
        self.up(name)
        if thresholds:
            self.revise(name, thresholds=list(thresholds))
        self.now = self.now.replace(second=0, microsecond=0) + timedelta(minutes=1)
        return self.row(name)

    def samples(self, query: Query, minutes: int = 10, **columns: Any) -> None:
        """Write one sample a minute up to now."""
        for back in range(minutes, 0, -1):
            at = self.now - timedelta(minutes=back)
            FigureSample.objects.create(query=query, at=at, **{"late": 0, **columns})

    def watch(self) -> list[Incident]:
        service.watch_incidents(now=self.now)
        return list(Incident.objects.filter(state=IncidentState.OPEN))


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    stage = Limits()
    monkeypatch.setattr(service, "system_health", lambda now: SystemHealth(now, ()))
    monkeypatch.setattr("queries.selectors.alerts.thresholds._USUAL", {})
    return stage


def rollup(query: Query, start: datetime, width_s: int = 60, **columns: Any) -> None:
    figures = {"batches": 1, "rows": 0, "duration_ms_sum": 1000, **columns}
    Rollup.objects.create(
        query=query.pk,
        width_s=width_s,
        start=start,
        duration_ms_min=figures["duration_ms_sum"],
        duration_ms_max=figures["duration_ms_sum"],
        **figures,
    )


def test_a_crossed_threshold_is_an_incident_with_its_numbers_and_clears(limits: Limits) -> None:
    query = limits.running("delays", BEHIND)
    limits.samples(query, records=1_200_000)
    (incident,) = limits.watch()
    assert incident.kind == IncidentKind.THRESHOLD
    assert incident.title == (
        "delays: 1.2 M records behind on average over 10 min; the threshold is 1 M"
    )
    limits.now += timedelta(minutes=10)
    limits.samples(query, records=5)
    limits.watch()
    limits.now += QUIET_BEFORE_CLOSING
    assert limits.watch() == []


def test_missing_figures_open_nothing_and_close_nothing(limits: Limits) -> None:
    query = limits.running("delays", BEHIND)
    assert limits.watch() == []
    limits.samples(query, records=1_200_000)
    limits.watch()
    limits.now += timedelta(minutes=30)
    (incident,) = limits.watch()
    assert incident.quiet_since is None
    assert "Not enough data" in incident.detail


def test_a_stopped_query_crosses_nothing(limits: Limits) -> None:
    query = limits.running("delays", BEHIND)
    limits.samples(query, records=1_200_000)
    limits.stop("delays")
    assert limits.watch() == []


def test_a_maintenance_window_opens_no_incident(limits: Limits) -> None:
    query = limits.running("delays", BEHIND)
    limits.samples(query, records=1_200_000)
    Maintenance.objects.create(
        name="upgrade",
        starts_at=limits.now,
        ends_at=limits.now + timedelta(hours=1),
        created_at=limits.now,
        created_by="anna",
    )
    assert limits.watch() == []


def test_a_rule_limits_the_queries_it_matches_except_where_they_have_their_own(
    limits: Limits,
) -> None:
    plain, own = limits.running("plain"), limits.running("own", {**BEHIND, "value": 5_000_000})
    other = limits.running("other")
    Query.objects.filter(pk__in=[plain.pk, own.pk]).update(labels={"tier": "1"})
    made: dict[str, Any] = {"created_at": limits.now, "created_by": "anna"}
    rule = AlertRule.objects.create(
        name="tier-1", selector={"labels": {"tier": "1"}}, thresholds=[BEHIND], **made
    )
    rule.channels.create(name="pager", kind="webhook", created_at=limits.now, created_by="anna")
    for query in (plain, own, other):
        limits.samples(query, records=1_200_000)
    (incident,) = limits.watch()
    assert incident.query == plain
    assert incident.detail.endswith("Set by the rule tier-1.")


def test_an_unreadable_threshold_does_not_hide_the_others(limits: Limits) -> None:
    query = limits.running("delays", BEHIND)
    Query.objects.filter(pk=query.pk).update(thresholds=[{"figure": "moon"}, BEHIND])
    made: dict[str, Any] = {"created_at": limits.now, "created_by": "anna"}
    rule = AlertRule.objects.create(name="rotten", thresholds=[3], **made)
    rule.channels.create(name="pager", kind="webhook", created_at=limits.now, created_by="anna")
    limits.samples(query, records=1_200_000)
    assert len(limits.watch()) == 1
    assert set(LoopTrouble.objects.values_list("about", flat=True)) == {
        "threshold 0 of delays",
        "the thresholds of rule rotten",
    }


def test_saved_thresholds_apply_at_once_and_restart_nothing(limits: Limits) -> None:
    limits.running("delays")
    run = limits.run("delays")
    limits.revise("delays", thresholds=[BEHIND])
    limits.settle()
    limits.samples(limits.row("delays"), records=1_200_000)
    assert [one.kind for one in limits.watch()] == [IncidentKind.THRESHOLD]
    assert limits.run("delays") == run
    limits.revise("delays", thresholds=[])
    assert limits.row("delays").thresholds is None


@pytest.mark.parametrize(
    ("threshold", "columns"),
    [
        ({"figure": "seconds_behind", "value": 60}, {"seconds": 90.0}),
        ({"figure": "bytes_behind", "value": 1e9}, {"bytes": 2_000_000_000}),
        ({"figure": "files_behind", "value": 10}, {"files": 11}),
    ],
)
def test_each_sampled_figure_is_compared(
    limits: Limits, threshold: dict[str, Any], columns: dict[str, Any]
) -> None:
    query = limits.running("delays", threshold)
    limits.samples(query, **columns)
    assert len(list(crossed_thresholds(now=limits.now))) == 1


def test_figures_are_sampled_although_the_clock_was_set_back(limits: Limits) -> None:
    query = limits.running("delays")
    FigureSample.objects.create(query=query, at=limits.now + timedelta(days=1), late=0)
    assert (sample_figures(now=limits.now), sample_figures(now=limits.now)) == (1, 0)


def test_late_rows_are_counted_within_the_window_and_across_midnight(limits: Limits) -> None:
    query = limits.running("delays", {"figure": "late_rows", "value": 50})
    limits.now = limits.now.replace(hour=0, minute=5)
    for back, late in zip(range(11, 0, -1), [900] * 3 + [960] * 3 + [7] * 5, strict=True):
        at = limits.now - timedelta(minutes=back)
        FigureSample.objects.create(query=query, at=at, late=late)
    (status,) = threshold_status(query, now=limits.now)
    assert status.judged.text == "67 late rows in 10 min; the threshold is 50."


def test_batch_time_and_state_come_from_rollups(limits: Limits) -> None:
    query = limits.running(
        "delays",
        {"figure": "batch_seconds", "factor": 2},
        {"figure": "state_rows", "value": 1000},
    )
    for hour in range(2, 50):
        start = limits.now.replace(minute=0) - timedelta(hours=hour)
        rollup(query, start, 3600, batches=10, duration_ms_sum=40_000)
    rollup(query, limits.now - timedelta(minutes=3), duration_ms_sum=9_000, state_rows_max=5000)
    slow, state = (one.judged for one in threshold_status(query, now=limits.now))
    assert slow.text == (
        "9 s per batch on average over 10 min; the threshold is 8 (2 × last week's p95)."
    )
    assert state.state is Crossing.CROSSED


def test_an_idle_query_has_a_rate_of_0_and_one_in_a_long_batch_has_none(limits: Limits) -> None:
    query = limits.running("delays", {"figure": "rows_per_second_below", "value": 10})
    limits.samples(query, 20)
    rollup(query, limits.now - timedelta(minutes=20), rows=60_000, duration_ms_sum=300_000)
    (status,) = threshold_status(query, now=limits.now)
    assert status.judged.state is Crossing.UNKNOWN
    Latest.objects.update_or_create(
        query=query.pk,
        defaults={
            **{"driver": 1, "epoch": 1, "seq": 9, "run": 1, "at": limits.now},
            "idle_at": limits.now,
        },
    )
    (status,) = threshold_status(query, now=limits.now)
    assert (status.judged.state, status.judged.value) == (Crossing.CROSSED, 0)
    long_ago = Threshold(figure="rows_per_second_below", value=10, window_minutes=20)
    found = preview(query, long_ago, now=limits.now)
    assert found.known_minutes > 0


def test_the_preview_says_how_often_and_for_which_time_it_does_not_know(limits: Limits) -> None:
    query = limits.running("delays")
    limits.samples(query, 100, records=3_000_000)
    found = preview(query, Threshold.model_validate(BEHIND), now=limits.now)
    assert len(found.crossed_at) == 1
    assert found.text.startswith("There are figures for only 95 min of the last 7 days; in these")
    assert "it would have fired once (first " in found.text


def test_a_sample_holds_current_figures_once_a_minute_and_goes_after_eight_days(
    limits: Limits,
) -> None:
    query = limits.running("delays")
    limits.query("stopped")
    SourceLag.objects.create(
        query=query, source="flights", partition=0, committed=10, latest=250, seen_at=limits.now
    )
    SourceLag.objects.create(
        query=query,
        **{"source": "/t", "partition": TABLE, "committed": 1, "latest": 3, "files": 4},
        **{"bytes": 99, "seen_at": limits.now, "table_format": "delta"},
    )
    Loss.objects.create(
        query=query,
        **{"kind": LossKind.LATE, "source": "w", "day": limits.now.date(), "records": 6},
        noticed_at=limits.now,
    )
    FigureSample.objects.create(query=query, at=limits.now - KEPT - timedelta(minutes=1), late=0)
    assert sample_figures(now=limits.now) == 1
    assert sample_figures(now=limits.now + timedelta(seconds=30)) == 0
    (row,) = FigureSample.objects.all()
    assert (row.records, row.files, row.bytes, row.late) == (240, 4, 99, 6)
    limits.now += timedelta(minutes=20)
    sample_figures(now=limits.now)
    stale = FigureSample.objects.get(at=limits.now)
    assert (stale.records, stale.files) == (None, None)


def test_the_number_of_database_queries_does_not_grow(limits: Limits) -> None:
    def asked() -> int:
        with CaptureQueriesContext(
            connection,
        ) as done:
            list(crossed_thresholds(now=limits.now))
        return len(done)

    every = [BEHIND, {"figure": "batch_seconds", "factor": 2}, {"figure": "late_rows", "value": 1}]
    limits.running("one", *every)
    first = asked()
    for name in ("two", "three", "four"):
        limits.running(name, *every)
    assert asked() == first


def test_a_query_whose_figures_cannot_be_read_keeps_no_other_from_being_sampled(
    limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, rotten = limits.running("good"), limits.running("rotten")

    def read(pks: list[int], **more: Any) -> dict[int, Any]:
        if rotten.pk in pks:
            raise ValueError("it cannot be read")
        return lag_lines(pks, **more)

    monkeypatch.setattr("queries.services.alerts.figures.lag_lines", read)
    assert sample_figures(now=limits.now) == 1
    assert FigureSample.objects.get().query == good
    assert LoopTrouble.objects.get().about == f"query number {rotten.pk}"


def test_a_minute_that_is_not_over_does_not_lower_the_rate(limits: Limits) -> None:
    query = limits.running(
        "delays", {"figure": "rows_per_second_below", "value": 95, "window_minutes": 5}
    )
    limits.samples(query, 20)
    for back in range(20, 0, -1):
        rollup(query, limits.now - timedelta(minutes=back), batches=6, rows=6_000)
    rollup(query, limits.now, rows=100)  # a second has passed since
    (status,) = threshold_status(query, now=limits.now + timedelta(seconds=1))
    assert (status.judged.state, status.judged.value) == (Crossing.FINE, 100)


def test_last_weeks_hours_are_read_once_an_hour(limits: Limits) -> None:
    def read() -> int:
        with CaptureQueriesContext(connection) as done:
            found = list(crossed_thresholds(now=limits.now))
        assert len(found) == 2
        return sum("duration_ms_sum" in one["sql"] for one in done)

    for name in ("one", "two"):
        query = limits.running(name, {"figure": "batch_seconds", "factor": 2})
        rollup(query, limits.now.replace(minute=0) - timedelta(hours=2), 3600)
    limits.now = limits.now.replace(minute=5)
    for query in Query.objects.all():
        rollup(query, limits.now - timedelta(minutes=3), duration_ms_sum=9_000)
    assert (read(), read()) == (2, 1)
    limits.now += timedelta(seconds=5)
    assert read() == 1
    limits.now += timedelta(hours=1)
    for query in Query.objects.all():
        rollup(query, limits.now - timedelta(minutes=3), duration_ms_sum=9_000)
    assert read() == 2
