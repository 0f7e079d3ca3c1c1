"""A stored row that cannot be read takes no list along: each list of pages and REST is asked.

The lists are the installation's own addresses, so a new one is asked without a line here. One row
of each table is made rotten, in every column of it that holds JSON or a word of a fixed set.
"""

import re
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, models, transaction
from django.template import Context, Template
from django.test import Client

from tests.security.rights.test_rights import ADDRESSES
from tests.security.rights.world import build

pytestmark = pytest.mark.django_db

ROTTEN: dict[str, Any] = {
    "a list": [None, "x", {"a": []}],
    "an object": {"name": None, "at": "+56971-10-25T00:00:00Z", "id": {}},
    "a number": -7,
    "a text": "56971-10-25",
    "null": models.Value(None, models.JSONField()),
}
#: Lists that are no list of rows, and why they are not asked.
NOT_ASKED = {
    "live": "a stream that does not end",
    "readyz": "answers 503 here, as no worker runs",
    "api:nothing": "is not there",
    "api:export": "all or nothing: an apply with prune would delete what is left out",
    "api:audit": "the other lists add to it as they are read",
    "audit": "same",
}
#: Columns of words that say so by their name alone, and those by which lists are divided.
WORDS = {
    "kind",
    "severity",
    "cause",
    "policy",
    "category",
    "verb",
    "restart_block",
    "subject",
    "verdict",
}
DIVIDING = {"desired", "phase", "status", "state", "outcome", "phase_reason"}
#: Tables of which no row can be made rotten, and why.
GUARDED = {"queries.AuditEntry": "the database refuses to change it", "queries.AuditAnchor": "same"}
LISTS = {
    name: "/" + route
    for name, (route, _) in ADDRESSES.items()
    if "<" not in route and name not in NOT_ASKED
}

_BEFORE: dict[str, tuple[int, int]] = {}  # status and rows of each list, while all is well


@pytest.fixture(scope="module")
def keys(story: None) -> dict[str, dict[str, str]]:
    return build()


def _make_rotten(value: Any) -> dict[str, int]:
    """Spoil one row of each table; return the columns that were."""
    done = {}
    for model in apps.get_models():
        if model._meta.app_label not in ("queries", "listeners") or model._meta.label in GUARDED:
            continue
        row = model._default_manager.order_by("pk").first()
        columns = [one.name for one in model._meta.fields if isinstance(one, models.JSONField)]
        if row is None or not columns:
            continue
        model._default_manager.filter(pk=row.pk).update(**dict.fromkeys(columns, value))
        done[model._meta.label] = row.pk
    return done


def _words(model: type[models.Model]) -> list[str]:
    """Return the columns of a table that hold a word of a fixed set."""
    return [
        one.name
        for one in model._meta.fields
        if isinstance(one, models.CharField)
        and not one.unique
        and (one.choices or isinstance(one.default, Enum) or one.name in WORDS)
    ]


def _counted(client: Client, address: str) -> tuple[int, int, str]:
    answer = client.get(address)
    text = "" if answer.streaming else answer.content.decode()
    if address.startswith("/api/") and answer.status_code == 200 and "results" in text[:20]:
        body = answer.json()
        return 200, len(body["results"]) + len(body.get("not_shown", ())), text
    return answer.status_code, len(re.findall(r"\bdata-row[\s>]", text)), text


@pytest.fixture
def asked(keys: Any, admin: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(admin)
    return client


@pytest.mark.parametrize("kind", ROTTEN)
def test_every_list_shows_as_many_rows_with_one_that_cannot_be_read(
    asked: Client, kind: str
) -> None:
    if not _BEFORE:
        _BEFORE.update({name: _counted(asked, address)[:2] for name, address in LISTS.items()})
    spoilt = _make_rotten(ROTTEN[kind])
    assert len(spoilt) > 8
    after = {}
    for name, address in LISTS.items():
        with transaction.atomic():
            after[name] = _counted(asked, address)[:2]
    assert {k: (_BEFORE[k], v) for k, v in after.items() if v != _BEFORE[k]} == {}


@pytest.mark.parametrize("dividing", [False, True])
def test_every_list_is_shown_with_a_word_that_nobody_knows(asked: Client, dividing: bool) -> None:
    spoilt = 0
    for model in apps.get_models():
        if model._meta.app_label not in ("queries", "listeners") or model._meta.label in GUARDED:
            continue
        row = model._default_manager.order_by("pk").first()
        names = [name for name in _words(model) if (name in DIVIDING) is dividing]
        if row is not None and names:
            rows = model._default_manager.filter(pk=row.pk)
            with suppress(IntegrityError), transaction.atomic():  # the table itself refuses it
                spoilt += rows.update(**dict.fromkeys(names, "SOON"))
    assert spoilt >= 5
    found = {name: _counted(asked, address) for name, address in LISTS.items()}
    assert {name: one[0] for name, one in found.items() if one[0] >= 500} == {}
    if dividing:
        assert "cannot be shown completely: ValueError" in found["queries"][2]
        assert "delays" in found["queries"][2]
        assert "sales" in found["queries"][2]


def test_a_row_that_cannot_be_drawn_says_so_in_its_place_and_keeps_its_id() -> None:
    text = (
        "{% load row_tags %}{% for one in rows %}{% row one %}"
        '<tr id="row-{{ one.name }}" data-row><td><a href="/x/{{ one.name }}/">{{ one.name }}</a>'
        "</td><td>{% url one.to %}</td></tr>"
        "{% endrow %}{% endfor %}"
    )
    rows = [
        SimpleNamespace(name="first", to="failures"),
        SimpleNamespace(name="<b>", to="no such page"),
        SimpleNamespace(name="last", to="failures"),
    ]
    drawn = Template(text).render(Context({"rows": rows}))
    assert drawn.count("</tr>") == 3
    assert drawn.count("cannot be shown: NoReverseMatch") == 1
    assert '<tr id="row-&lt;b&gt;" data-row><td colspan="100"><a href="/x/&lt;b&gt;/">' in drawn
    assert "/failures/</td></tr>" in drawn[drawn.index("last") :]


#: A loop whose body begins with a table row or a template, whatever it computes before.
_DRAWS_ROWS = re.compile(
    r"{% for [^%]*%}(?:\s|{% (?!row |include |for )[^%]*%})*(<tr\b|{% include \"([^\"]*)\")"
)


def test_each_row_of_a_table_that_is_drawn_in_a_loop_is_drawn_by_itself() -> None:
    """What a template puts into a table row after row is within `{% row %}`."""
    bare = []
    for path in Path(settings.BASE_DIR, "templates").rglob("*.html"):
        text = path.read_text()
        for loop in re.finditer(_DRAWS_ROWS, text):
            drawn = Path(settings.BASE_DIR, "templates", loop[2]).read_text() if loop[2] else "<tr"
            part = re.sub(r"{% comment.*?endcomment %}", "", drawn, flags=re.S)
            if "<tr" in part and "{% row " not in part:
                bare.append(f"{path.name}: {loop[0]}")
    assert [one for one in bare if not one.startswith(PLAIN_ROWS)] == []


PLAIN_ROWS = ("docs.html", "_fields.html", "_types.html", "_operation.html")  # of our own document
