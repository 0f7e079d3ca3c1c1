"""The fields of schedules have new names, also in what the former release has stored."""

import json
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from queries.models.access.accounts import KeptAnswer
from queries.models.access.audit import AuditEntry
from queries.models.applications import ApplicationRevision
from queries.models.definitions import Managed, Query, QueryRevision
from queries.models.deploys import Deploy, DeployChange
from queries.models.schedules import ScheduleState
from tests.api.manifests.conftest import Send, application, body, outcomes, query

pytestmark = pytest.mark.django_db

STEP = import_module("queries.migrations.0018_schedule_fields")
NEW = {
    "files": "/srv/inbox",
    "quiet_period_s": 30,
    "poll_interval_s": 20,
    "timeout_s": 600,
    "catch_up_window_s": 7200,
}
OLD = {STEP.FIELDS_BACK.get(name, name): value for name, value in NEW.items()}
ONCE = {"kind": "available_now"}
#: What users have under the same names is theirs.
THEIRS = {"limit_s": "INT"}


def _stored() -> dict[str, Any]:
    return {
        "query": QueryRevision.objects.get(query__name="arrived").spec,
        "script": ApplicationRevision.objects.get(application__name="nightly").spec,
        "applied": [row.applied for row in Managed.objects.order_by("pk")],
        "open": Deploy.objects.get(ended_at=None).asked,
        "change": DeployChange.objects.get(over=False).spec,
        "kept": [row.body for row in KeptAnswer.objects.order_by("key")],
    }


def test_stored_schedules_get_the_new_fields_and_nothing_else_changes(send: Send) -> None:
    manifest = query("arrived", spec={"trigger": ONCE, "schedule": NEW})
    send(manifest, application("nightly"))
    ApplicationRevision.objects.update(spec={"kind": "script", "schedule": NEW, "conf": OLD})
    now = timezone.now()
    asked = body(manifest, query("orders", spec={"params": THEIRS}))
    about = {"actor": "aude", "created_at": now}
    opened = Deploy.objects.create(asked=asked, **about)
    ended = Deploy.objects.create(asked={"schedule": OLD}, ended_at=now, **about)
    DeployChange.objects.create(
        deploy=opened, wave=1, kind="Query", name="arrived", spec=manifest["spec"]
    )
    paused = {"when": "", "runs": 3, **NEW}
    for key, kept in (("a", {"name": "arrived", "spec": manifest["spec"]}), ("b", paused)):
        KeptAnswer.objects.create(
            user="aude", key=key, status=200, body=kept, created_at=now - timedelta(hours=1)
        )
    today = _stored()
    audit = list(AuditEntry.objects.order_by("pk").values())
    states = list(ScheduleState.objects.values())

    STEP.restore(apps, None)
    former = _stored()
    assert former["query"]["schedule"].items() >= OLD.items()
    assert former["script"] == {"kind": "script", "schedule": OLD, "conf": OLD}
    assert former["kept"][1] == {"when": "", "runs": 3, **OLD}
    for place in former.values():
        assert "quiet_s" in json.dumps(place)
        assert "quiet_period_s" not in json.dumps(place)

    STEP.rename(apps, None)
    assert _stored() == today
    assert today["open"]["manifests"][1]["manifest"]["spec"]["params"] == THEIRS
    assert Deploy.objects.get(pk=ended.pk).asked == {"schedule": OLD}
    assert list(AuditEntry.objects.order_by("pk").values()) == audit
    assert list(ScheduleState.objects.values()) == states
    STEP.rename(apps, None)
    assert _stored() == today  # a second time, nothing is left to rename
    opened.delete()
    assert outcomes(send(manifest)) == {"arrived": "unchanged"}  # no drift, no new revision
    assert Query.objects.get(name="arrived").revisions.count() == 1


@pytest.mark.parametrize("former", sorted(STEP.FIELDS))
def test_a_former_field_is_rejected_with_the_new_name(send: Send, former: str) -> None:
    schedule = {"cron": "0 3 * * *", former: 600}
    answer = send(query("nightly", spec={"trigger": ONCE, "schedule": schedule}), status=422)
    [problem] = answer["objects"][0]["problems"]
    assert problem["field"].endswith(f"spec.schedule.{former}")
    assert f"It is now called {STEP.FIELDS[former]}" in problem["way_out"]
