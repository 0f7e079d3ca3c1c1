"""An installation that a worker was asked for ends with a reason, and stays readable."""

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.access import Act
from queries.models.history import Operation
from queries.services.access.audit import record_act
from queries.services.procedures.engine import due_operations
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db
SUBJECT = "connector kafka for Spark 4.2"


def _asked(outcome: str = "") -> Operation:
    now = timezone.now()
    operation = Operation.objects.create(
        verb="install",
        host="here",
        generation=0,
        actor="ada",
        created_at=now,
        deadline=now,
        committed=True,
        arguments={"spark": "4.2", "connector": "kafka"},
        steps=[
            {"name": f"Install {what}", "state": state, "at": now.isoformat(), "detail": ""}
            for what, state in (("Spark 4.2", "DONE"), (SUBJECT, outcome or "DOING"))
        ],
        outcome=outcome,
    )
    about = {"did": "requested", "operation": operation.uuid, "coordinates": []}
    record_act(Act.INSTALLED, actor="ada", now=now, subject=SUBJECT, **about)
    return operation


def test_an_open_one_is_ended_with_the_way_out_and_one_that_has_ended_is_left(
    client: Client, admin: User
) -> None:
    opened, done = _asked(), _asked("DONE")
    import_module("queries.migrations.0016_installs").end(apps, None)
    opened.refresh_from_db()
    done.refresh_from_db()
    assert (opened.outcome, done.outcome) == ("FAILED", "DONE")
    assert "no longer installs Spark and connectors" in opened.detail.text
    assert opened.ended_at is not None
    assert [step["state"] for step in opened.steps] == ["DONE", "FAILED"]
    assert due_operations(now=timezone.now()) == []

    client.force_login(admin)
    page = Page(client, f"/operations/{opened.uuid}/").text
    assert f"Install {SUBJECT}" in page
    assert "no longer installs Spark and connectors" in page
    assert SUBJECT in Page(client, "/audit/?tab=operations").text
    assert SUBJECT in Page(client, "/audit/").text
    rest = APIClient()
    rest.force_authenticate(admin)
    shown = rest.get(f"/api/v1/operations/{opened.uuid}/").json()
    assert (shown["verb"], shown["outcome"]) == ("install", "FAILED")
