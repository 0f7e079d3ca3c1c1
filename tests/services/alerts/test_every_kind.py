"""Every kind of incident is made to happen by a test that asserts it; a new one fails here."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.channels import webhook
from queries.channels.base import Message
from queries.channels.mail import mail_of
from queries.domain.alerts.explanations import OF_FAILURE
from queries.domain.alerts.forms import IncidentKind, IncidentState, NotificationStep
from queries.domain.alerts.routing import Telling
from queries.models.alerts import Incident
from queries.models.history import Failure
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


#: Where an incident is: of a query with and without a failure, of many, of no query.
SHAPES = ("query", "failure", "many", "none")


@pytest.mark.guarantee("G-AGE-1")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", IncidentKind)
def test_every_channel_rest_and_the_page_tell_cause_place_and_next_click(
    client: Client, admin: User, failed: Failure, kind: IncidentKind, shape: str, settings: Any
) -> None:
    settings.PUBLIC_URL = "https://headgate.example"
    at = failed.at
    assert failed.run is not None
    of_query = shape in ("query", "failure")
    incident = Incident.objects.create(
        kind=kind,
        fingerprint="x",
        severity=kind.severity,
        title=f"It is {kind.label}",
        detail="Evidence 42 of 43.",
        query=failed.run.query if of_query else None,
        application=failed.driver.application if of_query else None,
        failure_group=failed.group if shape == "failure" else None,
        affected=[] if shape == "none" else ["delays"],
        affected_count={"none": 0, "many": 1000}.get(shape, 1),
        **{"opened_at": at, "first_opened_at": at, "seen_at": at},
    )
    message = message_of(incident, Telling(NotificationStep.OPENED, 1), at)
    facts = dict(message.facts)
    assert message.text.endswith(".")
    assert "Evidence 42 of 43." in message.text
    assert message.text.strip() != "Evidence 42 of 43."  # the number and why it is one
    of_failure = shape == "failure" and kind in OF_FAILURE
    assert ("Connection refused" in message.text) is of_failure
    place = {"none": "Headgate", "many": "queries delays, 999 more"}.get(shape, "query delays")
    assert facts["Where"].startswith(place)
    assert facts["What to do"].endswith(".")
    assert facts["Do it here"].startswith("https://headgate.example/")
    click = urlsplit(facts["Do it here"]).path
    for words in _sent(message):
        assert message.text in words
        for name in ("Where", "What to do", "Do it here"):
            assert f"{name}: {facts[name]}" in words

    client.force_login(admin)
    body = client.get(f"/api/v1/incidents/{incident.uuid}/").json()
    told = (message.text, facts["Where"], facts["What to do"], click, "")
    names = ("cause", "place", "next_step", "next_page", "ended")
    assert tuple(body[name] for name in names) == told

    assert client.get(click, follow=True).status_code == 200
    here = f"/alerts/{incident.uuid}/"
    page = unescape(client.get(here).content.decode())
    for words in told[:3]:
        assert words.replace("`", "") in page.replace("<code>", "").replace("</code>", "")
    assert click == here or f'href="{click}"' in page

    incident.closed_at, incident.state = at, IncidentState.CLOSED
    incident.save()
    over = message_of(incident, Telling(NotificationStep.RESOLVED, 1), at)
    assert "Evidence" not in over.text  # what was seen then no longer holds
    assert "What to do" not in dict(over.facts)
    page = unescape(client.get(here).content.decode())
    assert over.text in page
    assert "What to do" not in page
    body = client.get(f"/api/v1/incidents/{incident.uuid}/").json()
    assert (body["ended"], body["next_step"]) == (over.text, "")


def _sent(message: Message) -> Iterator[str]:
    """Yield what is sent by webhook and mail; `tests.channels` compares the others."""
    form = json.loads(webhook.body_of(message))
    yield "\n".join([form["text"], *(f"{one['name']}: {one['value']}" for one in form["facts"])])
    yield mail_of({"sender": "a@b.example", "recipients": ["c@d.example"]}, message).get_content()
