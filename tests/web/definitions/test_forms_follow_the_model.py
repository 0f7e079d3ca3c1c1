"""A field of a definition is a field of its model and a place on the form: nothing else."""

import io
import json
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from pydantic import Field, TypeAdapter

from queries.api import schema
from queries.domain.definitions import parsing
from queries.domain.definitions.spec import PythonQuery, Sink, SqlQuery
from queries.models.definitions import Query
from queries.views.definitions.query_bundle import QueryForm
from tests.web.browserless import Page


class RolledSink(Sink):
    """A sink with one field more."""

    files_at_once: int = Field(default=1, ge=1, le=8)


class OwnedQuery(SqlQuery):
    """A query with two fields more, one of them in its sink."""

    owner: str = Field(default="", max_length=20)
    sink: RolledSink | None = None


_SHAPE: Any = Annotated[OwnedQuery | PythonQuery, Field(discriminator="kind")]
#: What a change adds to the form's template: a line for each field.
_PLACES = """
{% field main.owner "Who answers for it" hint="A name or a team." %}
{% field main.sink_files_at_once "Files at once" width=3 %}
"""


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    """Give the model two fields more, and each its place on the form."""
    monkeypatch.setattr(QueryForm, "shape", _SHAPE)
    monkeypatch.setitem(schema._SPECS, "QuerySpec", _SHAPE)
    monkeypatch.setattr(parsing, "QUERY", TypeAdapter(_SHAPE))
    form = Path(configured.BASE_DIR, "templates/definitions/_query_fields.html").read_text()
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "_query_fields.html").write_text(form + _PLACES)
    templates = deepcopy(settings.TEMPLATES)
    templates[0]["DIRS"] = [tmp_path, *templates[0]["DIRS"]]
    settings.TEMPLATES = templates


@pytest.fixture
def form(grown: None, client: Client, author: User) -> Page:
    client.force_login(author)
    return Page(client, "/new/query/", form="definition")


def _fill(**more: str) -> dict[str, str]:
    return {
        "name": "ticks",
        "sources__0__name": "ticks",
        "sources__0__format": "rate",
        "sql": "SELECT value FROM ticks",
        "sink_format": "noop",
        "owner": "night shift",
        "sink_files_at_once": "4",
        **more,
    }


def _body() -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "rate"}],
        "sql": "SELECT value FROM ticks",
        "sink": {"format": "noop", "files_at_once": 2},
        "owner": "day shift",
    }


def test_it_stands_on_the_form_with_its_default_and_is_kept(form: Page) -> None:
    assert form.fields["sink_files_at_once"] == "1"
    assert "Who answers for it" in form.text
    form.press("create", **_fill())
    spec = Query.objects.get().revisions.get().spec
    assert (spec["owner"], spec["sink"]["files_at_once"]) == ("night shift", 4)


def test_what_the_model_refuses_is_told_at_its_field(form: Page) -> None:
    after = form.press("create", **_fill(sink_files_at_once="9"))
    assert "less than or equal to 8" in after.error_at("sink_files_at_once")
    after = form.press("create", **_fill(sink_files_at_once="many"))
    assert "whole number" in after.error_at("sink_files_at_once")
    after = form.press("create", **_fill(owner="x" * 21))
    assert "20 characters" in after.error_at("owner")


def test_the_json_tab_holds_it(form: Page) -> None:
    shown = form.press("to-json", **_fill())
    spec = json.loads(shown.fields["json"])["spec"]
    assert (spec["owner"], spec["sink"]["files_at_once"]) == ("night shift", 4)
    assert shown.press("to-form").fields["owner"] == "night shift"


def test_a_change_of_it_is_shown_and_saved(form: Page, client: Client) -> None:
    form.press("create", **_fill())
    edit = Page(client, "/queries/ticks/edit/", form="definition")
    assert edit.fields["sink_files_at_once"] == "4"
    shown = edit.press("review", owner="day shift")
    assert "owner: night shift" in shown.text
    assert "owner: day shift" in shown.text
    shown.press("save")
    assert Query.objects.get().revisions.get(number=2).spec["owner"] == "day shift"
    tab = client.get("/queries/ticks/definition/").content.decode()
    assert "night shift" in tab
    assert "files_at_once" in tab


def test_rest_takes_it_returns_it_and_describes_it(form: Page, client: Client) -> None:
    made = client.post(
        "/api/v1/queries/", {"name": "ticks", "spec": _body()}, content_type="application/json"
    )
    assert made.status_code == 201
    assert made.json()["spec"]["owner"] == "day shift"
    part = {"spec": {"sink": {"files_at_once": 9}}}
    refused = client.patch("/api/v1/queries/ticks/", part, content_type="application/json")
    assert refused.json()["problems"][0]["field"] == "sink.files_at_once"
    out = io.StringIO()
    call_command("spectacular", "--format", "openapi-json", stdout=out)
    described = json.loads(out.getvalue())["components"]["schemas"]
    assert described["OwnedQuery"]["properties"]["owner"]["maxLength"] == 20
    assert described["RolledSink"]["properties"]["files_at_once"]["maximum"] == 8


def test_without_the_field_rest_refuses_it(client: Client, author: User) -> None:
    client.force_login(author)
    answer = client.post(
        "/api/v1/queries/", {"name": "ticks", "spec": _body()}, content_type="application/json"
    )
    assert answer.status_code == 422
    fields = {each["field"] for each in answer.json()["problems"]}
    assert fields == {"sink.files_at_once", "owner"}
