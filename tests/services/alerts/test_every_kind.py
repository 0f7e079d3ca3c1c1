"""Every kind of incident is made to happen by a test that asserts it; a new one fails here."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.channels import webhook
from queries.channels.mail import mail_of
from queries.domain.alerts.explanations import OF_FAILURE
from queries.domain.alerts.kinds import IncidentKind, Step
from queries.domain.alerts.routing import Telling
from queries.models.alerts import Incident
from queries.models.failures import Failure
from queries.services.alerts.deliveries import message_of
from tests.scenarios.stage import BROKEN_PIPE, Stage

TESTS = Path(__file__).parents[2]
#: Where incidents come of rows, drivers and processes; tests of pure functions do not count.
ROOMS = ("services", "scenarios", "browser")


@cache
def _asserted() -> str:
    """Return what tests assert there, and the cases that they assert it for."""
    found = []
    for room in ROOMS:
        for path in (TESTS / room).rglob("test_*.py"):
            if path == Path(__file__):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Assert):
                    found.append(ast.unparse(node))
                elif isinstance(node, ast.FunctionDef):
                    found += [ast.unparse(one) for one in node.decorator_list]
    return "\n".join(found)


@pytest.mark.parametrize("kind", IncidentKind)
def test_a_test_makes_it_happen(kind: IncidentKind) -> None:
    named = re.search(rf"\bIncidentKind\.{kind.name}\b|'{kind.value}'", _asserted())
    assert named, f"no test asserts an incident of the kind {kind.value}"


@pytest.fixture
def failed(db: None) -> Failure:
    """The failure of a query, on a stage of its own."""
    stage = Stage()
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", BROKEN_PIPE, batch=7)
    return Failure.objects.get()


@pytest.mark.parametrize("with_failure", [False, True])
@pytest.mark.parametrize("kind", IncidentKind)
def test_every_channel_and_the_page_tell_cause_place_and_next_click(
    client: Client,
    admin: User,
    failed: Failure,
    kind: IncidentKind,
    with_failure: bool,
    settings: Any,
) -> None:
    settings.PUBLIC_URL = "https://headgate.example"
    at = failed.at
    assert failed.run is not None
    incident = Incident.objects.create(
        kind=kind,
        fingerprint="x",
        severity=kind.severity,
        title=f"delays: {kind.label}",
        detail="Evidence 42 of 43.",
        query=failed.run.query,
        application=failed.driver.application,
        failure_group=failed.group if with_failure else None,
        affected=["delays"],
        **{"opened_at": at, "first_opened_at": at, "seen_at": at},
    )
    message = message_of(incident, Telling(Step.OPENED, 1), at)
    facts = dict(message.facts)
    assert "Evidence 42 of 43." in message.text
    of_failure = with_failure and kind in OF_FAILURE
    assert ("Connection refused" in message.text) is of_failure
    assert facts["Where"].startswith("query delays")
    assert facts["What to do"].endswith(".")
    assert facts["Do it here"].startswith("https://headgate.example/")
    form = json.loads(webhook.body_of(message))
    mail = mail_of({"sender": "a@b.example", "recipients": ["c@d.example"]}, message).as_string()
    for name in ("Where", "What to do", "Do it here"):
        assert {"name": name, "value": facts[name]} in form["facts"]
        assert f"{name}: " in mail

    client.force_login(admin)
    assert client.get(urlsplit(facts["Do it here"]).path, follow=True).status_code == 200
    page = client.get(f"/alerts/{incident.uuid}/").content.decode()
    assert "Evidence 42 of 43." in page
    assert "<dt>What to do</dt>" in page

    incident.closed_at = at
    over = message_of(incident, Telling(Step.RESOLVED, 1), at)
    assert "Evidence" not in over.text  # what was seen then no longer holds
    assert "What to do" not in dict(over.facts)
