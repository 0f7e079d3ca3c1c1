"""Every text that an author, a driver or a broker writes is shown as text, on every page.

The console is crawled from its overview, as an admin who sees everything, over an installation in
which every such text is an attempt at a script.
"""

import html
import re
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db.models import CharField, TextField
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.access import Act
from queries.domain.protocol import RunError
from queries.domain.states import Phase
from queries.models.access.accounts import SavedView
from queries.models.access.audit import AuditAnchor, AuditEntry
from queries.models.alerts import AlertRule, Channel
from queries.models.drivers import Installation, Run
from queries.services.access.audit import record_act
from queries.services.access.tokens import create_token
from queries.services.alerts.incidents import note, watch_incidents
from tests.scenarios.stage import DIVIDE, Stage

pytestmark = pytest.mark.django_db

HOSTILE = "\"'><img src=x onerror=alert(1)>{{7*7}}{%now%}"
RAW = "<img src=x"
#: More than the console has: a link that leads on for ever ends here.
MOST_PAGES = 500
#: Columns that hold what somebody wrote or some machine said. Names of queries and applications
#: are letters, digits and dashes by their own rule.
SAID = {
    *("author", "actor", "title", "resolved_by", "closed_by", "acknowledged_by", "assignee"),
    *("created_by", "accepted_by", "error_class", "error_type", "root_cause", "message", "text"),
    *("log_tail", "last_error", "location", "directory", "spark_version", "java_version"),
    *("spark_application_id", "ui_url", "about", "host", "source", "error"),
}
NAMED = {"host", "accesstoken", "channel", "alertrule", "maintenance", "savedview"}


#: The database refuses to change these; they are written with the attempt in them.
GROWS_ONLY = {AuditEntry, AuditAnchor}


def _poison() -> None:
    """Write the attempt into every column of a text that is not ours."""
    for app in ("queries", "listeners"):
        for model in apps.get_app_config(app).get_models():
            for field in () if model in GROWS_ONLY else model._meta.fields:
                if not isinstance(field, CharField | TextField) or field.choices or field.unique:
                    continue
                named = field.name == "name" and model._meta.model_name in NAMED
                for row in model._base_manager.all() if field.name in SAID or named else ():
                    attempt = f"{row.pk}{HOSTILE}"[: field.max_length]  # some must differ
                    if field.name.endswith("url"):
                        attempt = "javascript:alert(1)"
                    model._base_manager.filter(pk=row.pk).update(**{field.name: attempt})


@pytest.fixture(scope="module")
def stage(story: None) -> Stage:
    """Return an installation in which something of everything has happened."""
    stage = Stage()
    Installation.raise_epoch(10_000)  # no run's number is its epoch, whatever ran before
    spec: dict[str, Any] = {
        "description": HOSTILE,
        "sql": f"SELECT '{HOSTILE}' FROM flights",
        "sources": [{"name": "flights", "format": "rate", "options": {"o": HOSTILE}}],
        "sink": {"format": "noop", "options": {"p": HOSTILE}},
    }
    stage.application("shared", description=HOSTILE, conf={"spark.x": HOSTILE})
    stage.query("delays", "shared", **spec)
    stage.query("alarms", **spec)
    stage.up("delays", "shared")
    stage.up("alarms")
    stage.fail("alarms", RunError(DIVIDE.error_class, HOSTILE, HOSTILE, HOSTILE), batch=3)
    stage.pause("alarms")
    stage.fail("alarms", RunError("DATA_SOURCE_NOT_FOUND", HOSTILE, HOSTILE, HOSTILE))
    assert stage.phase("alarms") == Phase.FAILED
    stage.revise("delays", sql=f"SELECT '{HOSTILE}' AS b FROM flights")
    watch_incidents(now=stage.now)
    ada = User.objects.create_user(HOSTILE, password="a password of the cast")
    ada.groups.add(Group.objects.get(name="admin"))
    for incident in apps.get_model("queries", "Incident").objects.all():
        note(incident, text=HOSTILE, actor=HOSTILE, now=stage.now)
    about = {"created_at": stage.now, "created_by": HOSTILE}
    Channel.objects.create(name=HOSTILE, kind="webhook", settings={"url": "file:hook"}, **about)
    AlertRule.objects.create(name=HOSTILE, selector={"labels": {"team": HOSTILE}}, **about)
    create_token(user=ada, name=HOSTILE, actor=HOSTILE, now=timezone.now())
    SavedView.objects.create(user=ada, name=HOSTILE, address="/queries/?q=a", created_at=stage.now)
    for row in (stage.row("delays"), stage.row("delays").application):
        row.labels = {"team": HOSTILE}
        row.save()
    about = {"how": HOSTILE}
    record_act(Act.TOKEN_CREATED, actor=HOSTILE, now=stage.now, subject=HOSTILE, **about)
    _poison()
    return stage


@pytest.fixture(scope="module")
def pages(stage: Stage) -> dict[str, HttpResponse]:
    """Return every page that links lead to from the overview, by its address."""
    client = Client()
    client.force_login(User.objects.get())
    found: dict[str, HttpResponse] = {}
    seen: set[tuple[str, ...]] = set()
    ahead = ["/"]
    while ahead and len(found) < MOST_PAGES:
        address = ahead.pop()
        parts = urlsplit(address)
        kind = (parts.path, *sorted(parse_qs(parts.query)))
        if kind in seen or parts.path.startswith("/events/"):
            continue
        seen.add(kind)
        found[address] = cast(HttpResponse, client.get(address))
        ahead += links_of(address, found[address])
    return found


def links_of(address: str, answer: HttpResponse) -> Iterator[str]:
    if getattr(answer, "streaming", False) or "html" not in answer.get("Content-Type", ""):
        return
    for link in re.findall(r'(?:href|hx-get)="([^"]*)"', answer.content.decode()):
        parts = urlsplit(urljoin(address, html.unescape(link)))
        if parts.scheme or parts.netloc or parts.path.startswith("/static/"):
            continue
        yield parts.path + (f"?{parts.query}" if parts.query else "")


def test_the_crawl_comes_to_every_part_of_the_console(pages: dict[str, HttpResponse]) -> None:
    shown = {address.split("?")[0] for address in pages}
    parts = ("queries", "applications", "failures", "runs", "checkpoints", "alerts", "settings")
    for part in parts:
        assert any(address.startswith(f"/{part}/") for address in shown), part
    assert len(pages) > 80
    assert not {address for address, answer in pages.items() if answer.status_code >= 500}


def test_a_run_has_one_number_in_addresses_texts_and_rest(
    pages: dict[str, HttpResponse], stage: Stage
) -> None:
    assert all(run.pk != run.epoch for run in Run.objects.all())  # else it would prove nothing
    shown = 0
    for address, answer in pages.items():
        if getattr(answer, "streaming", False):
            continue
        links = re.findall(r'<a [^>]*href="/runs/(\d+)/"[^>]*>(.*?)</a>', answer.content.decode())
        for number, inside in links:
            text = re.sub(r"<[^>]*>", "", inside).strip()
            named = re.match(r"(?:run )?(\d+)\b", text, re.IGNORECASE)
            shown += named is not None
            assert named is None or named[1] == number, (address, text, number)
    assert shown > 10
    run = Run.objects.latest("epoch")
    client = APIClient()
    client.force_authenticate(User.objects.get())
    body = client.get(f"/api/v1/runs/{run.pk}/").json()
    assert (body["id"], body["epoch"]) == (run.pk, run.epoch)
    assert body["links"]["self"] == f"/api/v1/runs/{run.pk}/"


@pytest.mark.guarantee("G-PAGE-1")
def test_what_somebody_wrote_is_text_on_every_page(pages: dict[str, HttpResponse]) -> None:
    texts = {
        address: b"".join(answer) if answer.streaming else answer.content
        for address, answer in pages.items()
        if "html" in answer.get("Content-Type", "")
    }
    assert {address for address, text in texts.items() if RAW.encode() in text} == set()
    assert sum("&lt;img src=x" in text.decode() for text in texts.values()) > 30


@pytest.mark.guarantee("G-PAGE-1")
def test_no_link_leads_to_a_script(pages: dict[str, HttpResponse]) -> None:
    for address, answer in pages.items():
        if not answer.streaming:
            found = re.findall(
                rb'(?:href|src|action)="\s*(?:javascript|data|vbscript):', answer.content
            )
            assert not found, address


@pytest.mark.guarantee("G-PAGE-2", "G-REQUEST-4")
def test_every_answer_carries_the_headers_that_keep_a_browser_safe(
    pages: dict[str, HttpResponse],
) -> None:
    for address, answer in pages.items():
        assert answer["X-Content-Type-Options"] == "nosniff", address
        assert "no-store" in answer["Cache-Control"], address
        if "html" in answer.get("Content-Type", ""):
            policy = answer["Content-Security-Policy"]
            assert "default-src 'none'" in policy, address
            assert "unsafe" not in policy, address
            assert "frame-ancestors 'none'" in policy, address
            assert answer["X-Frame-Options"] == "DENY", address
            assert answer["Referrer-Policy"] == "same-origin", address


@pytest.mark.guarantee("G-PAGE-1")
def test_htmx_runs_no_text_as_a_script(pages: dict[str, HttpResponse]) -> None:
    page = pages["/"].content.decode()
    for setting in ('"allowEval":false', '"allowScriptTags":false', '"selfRequestsOnly":true'):
        assert setting in page
    assert not [
        address
        for address, answer in pages.items()
        if not answer.streaming and re.search(rb"\shx-on[:=-]|\son[a-z]+=\"", answer.content)
    ]
