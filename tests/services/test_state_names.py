"""A database of 0.1.0 has today's words after the migration, in every row that is still read."""

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from queries.domain.access import Act
from queries.domain.alerts.routing import Telling
from queries.models.access.accounts import KeptAnswer, SavedView
from queries.models.access.audit import AuditEntry
from queries.models.alerts import AlertRule, Delivery, Incident, Maintenance
from queries.models.applications import Application, Script
from queries.models.definitions import Managed, Query, QueryRevision
from queries.models.deploys import Deploy, DeployChange
from queries.models.history import Operation, Transition
from queries.models.schedules import PlannedRun
from queries.selectors import manifests
from queries.services.access.audit import chain_entries, prove, record_act
from queries.services.alerts import incidents
from queries.services.alerts.deliveries import message_of

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = [("queries", "0016_installs")]
SQL = {"kind": "sql", "sql": "SELECT 'BROKEN' AS phase, 'broken' AS kind"}
#: What users wrote themselves, in their own words.
LABELS = {"kind": "broken", "phase": "BROKEN"}
WAITED = {"code": "WAITED", "phase": "BROKEN", "about": {"code": "REASON", "reason": "FAILED"}}


def _migrated(target: list[tuple[str, str]]) -> Any:
    MigrationExecutor(connection).migrate(target)
    return MigrationExecutor(connection).loader.project_state(target).apps


def _newest() -> list[tuple[str, str]]:
    graph = MigrationExecutor(connection).loader.graph
    return [node for node in graph.leaf_nodes() if node[0] == "queries"]


@pytest.fixture
def former() -> Iterator[Any]:
    """The models of 0.1.0 and a database with their tables; afterwards those of today."""
    newest = _newest()
    yield _migrated(BEFORE)
    _migrated(newest)


def _written(apps: Any) -> SimpleNamespace:
    """Write a row of every table that the migration touches, as 0.1.0 did."""
    now = timezone.now()

    def make(model: str, **fields: Any) -> Any:
        return apps.get_model("queries", model).objects.create(**fields)

    made = {"created_at": now, "created_by": "ada"}
    home = make("Application", name="flights", created_at=now, hold="BROKEN", hold_reason=WAITED)
    make("Script", application=home, phase="LOST")
    about = {"application": home, "created_at": now, "desired": "RUNNING", "generation": 1}
    seen = {**about, "seen_generation": 1}
    held = make("Query", name="held", phase="BROKEN", hold="BROKEN", labels=LABELS, **seen)
    make("Query", name="away", phase="LOST", **about)
    make("Query", name="gone", phase="RUNNING", verdict="ZOMBIE", **about)
    make("Query", name="dark", phase="RUNNING", verdict="BLIND", **about)
    make("Query", name="failed", phase="FAILED", hold="FAILED", **seen)
    make("QueryRevision", query=held, number=1, kind="sql", spec=SQL, author="ada", created_at=now)
    move = {"at": now, "application": home, "query": held, "reason": "FAILED_POISON"}
    make("Transition", subject="phase", before="LOST", after="BROKEN", **move)
    make("Transition", subject="group", before="OPEN", after="BROKEN", **move)

    times = {"opened_at": now, "first_opened_at": now, "seen_at": now, "severity": "critical"}
    opened = make(
        "Incident",
        kind="broken",
        fingerprint=f"broken:query:{held.pk}",
        title="held: on hold as broken",
        query=held,
        application=home,
        **times,
    )
    make("Incident", kind="zombie", fingerprint="zombie:driver", title="two", **times)
    make("Incident", kind="blind", fingerprint="x" * 200, state="CLOSED", title="3", **times)
    selector = {"kinds": ["disk", "broken", "blind"], "labels": LABELS, "stopped": True}
    rule = make("AlertRule", name="nights", selector=selector, **made)
    make("Maintenance", name="move", selector=selector, starts_at=now, ends_at=now, **made)
    channel = make("Channel", name="pager", kind="pagerduty", **made)
    message = {"kind": "broken", "title": "broken", "labels": LABELS}
    for state, step in (("WAITING", "opened"), ("SENT", "reminder")):
        make(
            "Delivery",
            incident=opened,
            channel=channel,
            occurrence=1,
            step=step,
            state=state,
            message=message,
            created_at=now,
        )
    form = {"spec": {"selector": selector, "channels": ["pager"]}}
    make("Managed", owner="team", rule=rule, applied=form, applied_at=now, applied_by="ada")
    asked = {"objects": [{"kind": "AlertRule", **form}, {"kind": "Query", "spec": SQL}]}
    for ended in (None, now):
        deploy = make("Deploy", actor="ada", created_at=now, asked=asked, ended_at=ended)
    make(
        "DeployChange",
        deploy=deploy,
        wave=1,
        kind="query",
        name="held",
        spec=SQL,
        reason=WAITED,
        evidence={"judged_by": WAITED},
    )
    for key, skipped in (("1", "held"), ("2", "overlap")):
        overlap = {"code": "OVERLAPPED", "state": "LOST"} if skipped == "overlap" else {}
        make(
            "PlannedRun",
            query=held,
            key=key,
            due_at=now,
            state="SKIPPED",
            skipped=skipped,
            reason=overlap,
        )
    make(
        "Operation",
        verb="start",
        query=held,
        generation=1,
        actor="ada",
        created_at=now,
        deadline=now,
        outcome="TIMED_OUT",
        detail=WAITED,
    )
    answer = {"phase": "BROKEN", "hold": "BROKEN", "health": {"verdict": "BLIND"}, "spec": SQL}
    make(
        "KeptAnswer",
        user="ada",
        key="k",
        digest="d",
        status=200,
        body={**answer, "labels": LABELS},
        created_at=now,
    )
    user = apps.get_model("auth", "User").objects.create(username="ada")
    filters = "q=BROKEN&phase=BROKEN&health=ZOMBIE&by=kind"
    make("SavedView", user=user, name="mine", address=filters, created_at=now)
    record_act(Act.FAILURES, actor="ada", now=now, subject="held", phase="BROKEN")
    chain_entries()
    return SimpleNamespace(incident=opened.uuid, query=held.pk, now=now)


def test_every_row_that_is_read_has_the_new_words(former: Any) -> None:
    written = _written(former)
    _migrated(_newest())

    phases = {
        row.name: (row.phase, row.verdict, row.restart_block, row.own_rank)
        for row in Query.objects.all()
    }
    assert phases == {
        "held": ("ON_HOLD", "", "ON_HOLD", 1),
        "away": ("UNREACHABLE", "", "", 1),
        "gone": ("RUNNING", "QUERY_MISSING", "", 1),
        "dark": ("RUNNING", "NO_TELEMETRY", "", 1),
        "failed": ("FAILED", "", "FAILED", 1),
    }
    assert list(Query.objects.filter(changing=True).values_list("name", flat=True)) == ["away"]
    home = Application.objects.get()
    assert home.restart_block == "ON_HOLD"
    assert home.restart_block_reason
    assert Script.objects.get().phase == "UNREACHABLE"
    moves = Transition.objects.order_by("pk").values_list("before", "after")
    assert list(moves) == [("UNREACHABLE", "ON_HOLD"), ("OPEN", "BROKEN")]
    skipped = PlannedRun.objects.order_by("key")
    assert [row.skipped for row in skipped] == ["blocked", "overlap"]
    assert "UNREACHABLE" in skipped[1].reason.text
    assert Operation.objects.get().detail.text.startswith("On hold: ")
    (view,) = SavedView.objects.values_list("address", flat=True)
    assert view == "q=BROKEN&phase=ON_HOLD&health=QUERY_MISSING&by=kind"
    assert KeptAnswer.objects.get().body == {
        "phase": "ON_HOLD",
        "restart_block": "ON_HOLD",
        "health": {"verdict": "NO_TELEMETRY"},
        "spec": SQL,
        "labels": LABELS,
    }
    assert prove(now=written.now)
    assert AuditEntry.objects.get().details["phase"] == "BROKEN"
    assert QueryRevision.objects.get().spec == SQL
    assert Query.objects.get(pk=written.query).labels == LABELS


def test_alerts_and_deploys_go_on(former: Any) -> None:
    _written(former)
    _migrated(_newest())

    kinds = ["disk", "on-hold", "no-telemetry"]
    rule = AlertRule.objects.get()
    for selector in (rule.selector, Maintenance.objects.get().selector):
        assert (selector["kinds"], selector["labels"]) == (kinds, LABELS)
    applied = Managed.objects.get().applied["spec"]
    state = manifests.of_rule(rule)["spec"]
    assert applied["selector"]["kinds"] == state["selector"]["kinds"]
    messages = dict(Delivery.objects.values_list("state", "message__kind"))
    assert messages == {"WAITING": "on-hold", "SENT": "broken"}

    open_deploy, ended = Deploy.objects.order_by("ended_at").order_by("pk")
    asked = open_deploy.asked["objects"]
    assert asked[0]["spec"]["selector"]["kinds"] == kinds
    assert asked[1]["spec"] == SQL
    assert ended.asked["objects"][0]["spec"]["selector"]["kinds"] == ["disk", "broken", "blind"]
    change = DeployChange.objects.get()
    assert change.reason.text.startswith("On hold: ")
    assert change.judged_by.startswith("On hold: ")
    assert change.spec == SQL


def test_an_open_incident_stays_the_same_one(former: Any) -> None:
    written = _written(former)
    _migrated(_newest())

    Application.objects.update(restart_block="")
    assert not Incident.objects.filter(kind__in=["broken", "zombie", "blind"]).exists()
    for seconds in (5, 10):
        incidents.watch_incidents(now=written.now + timedelta(seconds=seconds))
    (incident,) = Incident.objects.filter(kind="on-hold")
    assert (incident.uuid, incident.occurrence) == (written.incident, 1)
    assert incident.quiet_since is None
    telling = Telling("resolved", 1)  # type: ignore[arg-type]
    message = message_of(incident, telling, written.now)
    assert message.key == f"headgate/{written.incident}/1"


def test_the_way_back_gives_the_former_words(former: Any) -> None:
    _written(former)
    newest = _newest()
    _migrated(newest)
    apps = _migrated(BEFORE)
    query = apps.get_model("queries", "Query").objects.get(name="held")
    assert (query.phase, query.hold) == ("BROKEN", "BROKEN")
    rule = apps.get_model("queries", "AlertRule").objects.get()
    assert rule.selector["kinds"] == ["disk", "broken", "blind"]
    (view,) = apps.get_model("queries", "SavedView").objects.values_list("address", flat=True)
    assert view == "q=BROKEN&phase=BROKEN&health=ZOMBIE&by=kind"
