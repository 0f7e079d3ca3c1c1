"""What anybody may send: large, deep and odd requests get an answer, never an error of ours."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
from asgiref import testing
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from rest_framework.test import APIClient

from installation.web.front import bounded, served
from queries.api.base import DEEPEST, EscapingRenderer
from queries.domain.errors import MOST_PROBLEMS
from tests.api.conftest import SPEC, as_author, calling
from tests.scenarios.stage import Stage

__all__ = ["as_author", "calling"]

pytestmark = pytest.mark.django_db

JSON = "application/json"
#: Texts that `str.isdigit` takes for numbers and `int` or a database does not.
ODD_NUMBERS = ["²", "٣", "9" * 30, "9" * 5000, "-1", "1e3", "\x00", "1 or 1=1"]


@pytest.fixture
def author_client(author: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(author)
    return client


@pytest.fixture(scope="module")
def delays(story: None) -> Stage:
    stage = Stage()
    stage.application("flights")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    return stage


# --- bodies ---------------------------------------------------------------------------
@pytest.mark.guarantee("G-REQUEST-1")
def test_a_body_that_is_larger_than_any_definition_is_413(as_author: APIClient) -> None:
    body = json.dumps({"name": "large", "spec": {"sql": "x" * 3_000_000}})
    answer = as_author.post("/api/v1/queries/", data=body, content_type="application/json")
    assert answer.status_code == 413
    assert "larger than 2,621,440 bytes" in answer.json()["detail"]


@pytest.mark.guarantee("G-REQUEST-1")
@pytest.mark.parametrize("depth", [DEEPEST + 1, 3_000, 100_000])
@pytest.mark.parametrize("bracket", ["[]", ('{"a":', "}")], ids=["lists", "objects"])
def test_a_body_nested_too_deeply_is_400(as_author: APIClient, depth: int, bracket: Any) -> None:
    opening, closing = bracket
    body = opening * depth + ("1" if len(opening) > 1 else "") + closing * depth
    answer = as_author.post("/api/v1/queries/", data=body, content_type="application/json")
    assert answer.status_code == 400
    assert f"nested more than {DEEPEST} levels" in answer.json()["detail"]


@pytest.mark.parametrize("body", [b"\xff", b"{", b"NaN", b'{"a": Infinity}', b"9" * 6000])
def test_what_is_not_json_is_400(as_author: APIClient, body: bytes) -> None:
    answer = as_author.post("/api/v1/queries/", data=body, content_type="application/json")
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"]


#: What a rule looks at one by one: keys of the body, of the definition, options, elements.
MANY = {f"kafka.unknown{n}": "x" for n in range(80_000)}


@pytest.mark.guarantee("G-REQUEST-3")
@pytest.mark.parametrize(
    "body",
    [
        MANY,
        {"name": "many", "spec": {**SPEC, **MANY}},
        {"name": "many", "spec": {**SPEC, "sink": {"format": "kafka", "options": MANY}}},
        {"name": "many", "spec": {**SPEC, "sources": [1] * 80_000}},
        {"name": "many", "labels": MANY, "spec": SPEC},
    ],
    ids=["body", "definition", "options", "list", "labels"],
)
def test_a_body_of_80_000_entries_is_refused_before_anything_looks_into_it(
    as_author: APIClient, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = as_author.post("/api/v1/queries/", data=json.dumps(body), content_type=JSON)
    assert answer.status_code == 422
    [told] = answer.json()["problems"]
    assert "80,0" in told["message"]
    assert "are allowed" in told["message"]


@pytest.mark.guarantee("G-REQUEST-3")
def test_a_list_of_problems_has_fifty_and_says_how_many_there_are(as_author: APIClient) -> None:
    spec = {**SPEC, **dict(list(MANY.items())[:900])}
    body = json.dumps({"name": "many", "application": "flights", "spec": spec})
    answer = as_author.post("/api/v1/queries/", data=body, content_type=JSON)
    assert answer.status_code == 422
    assert len(answer.json()["problems"]) == MOST_PROBLEMS
    assert "see “problems” for the first 50" in answer.json()["detail"]
    assert len(answer.content) < 50_000


def test_a_form_that_is_too_large_is_refused(author_client: Client, delays: Stage) -> None:
    body = "spec=" + "x" * 3_000_000
    kind = "application/x-www-form-urlencoded"
    assert (
        author_client.post("/queries/delays/edit/", data=body, content_type=kind).status_code == 400
    )


async def _answer(messages: list[bytes], declared: int | None) -> tuple[int, int]:
    """Return the status that a bounded application answers, and how much of the body it took."""
    taken = 0

    async def application(scope: Any, receive: Any, send: Any) -> None:
        nonlocal taken
        more = True
        while more:
            message = await receive()
            taken += len(message["body"])
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    headers = [] if declared is None else [(b"content-length", str(declared).encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    communicator: Any = testing.ApplicationCommunicator
    talk = communicator(bounded(application, most=1_000), scope)
    for number, body in enumerate(messages):
        more = number < len(messages) - 1
        await talk.send_input({"type": "http.request", "body": body, "more_body": more})
    start = await talk.receive_output(timeout=20)
    return int(start["status"]), taken


@pytest.mark.parametrize(
    ("messages", "declared", "status", "taken"),
    [
        ([b"x" * 1_000], 1_000, 200, 1_000),
        ([b"x" * 2_000], 2_000, 413, 0),
        ([b"x" * 900] * 3, None, 413, 900),  # chunked: nothing says how much will come
    ],
    ids=["fits", "declared", "chunked"],
)
def test_more_than_any_request_needs_is_not_even_taken(
    messages: list[bytes], declared: int | None, status: int, taken: int
) -> None:
    assert asyncio.run(_answer(messages, declared)) == (status, taken)


# --- numbers --------------------------------------------------------------------------
@contextmanager
def _undone() -> Iterator[None]:
    """Undo what a request writes, so that the next one finds the same."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


PAGES = [
    "/queries/delays/log/?before={}",
    "/queries/delays/log/lines/?after={}",
    "/queries/delays/log/?driver={}",
    "/queries/delays/edit/?from={}",
    "/applications/flights/edit/?from={}",
    "/queries/delays/checkpoint/?before={}",
    "/queries/delays/checkpoint/compare/?one={}&other={}",
    "/queries/delays/x-ray/?operator={}",
    "/queries/?page={}",
    "/applications/?page={}",
    "/find/?q=run+{}",
]


def test_an_odd_number_in_an_address_is_no_error_of_ours(
    author_client: Client, delays: Stage, subtests: pytest.Subtests
) -> None:
    for page, number in product(PAGES, ODD_NUMBERS):
        with subtests.test(f"{page} {number}"), _undone():
            answer = author_client.get(page.replace("{}", number))
            assert answer.status_code < 500


FORMS = [
    ("/queries/delays/x-ray/", {"operator": "{}", "rows": "{}"}),
    ("/queries/delays/rewind/", {"batch": "{}"}),
    ("/queries/delays/go-on/", {"typed": "{}"}),
    ("/queries/delays/trigger/change/", {"revision": "{}", "suggestion": "x"}),
    ("/queries/new/", {"act": "remove-sources-{}"}),
    ("/settings/tokens/", {"days": "{}", "name": "ci"}),
]


def test_an_odd_number_in_a_form_is_no_error_of_ours(
    author_client: Client, delays: Stage, subtests: pytest.Subtests
) -> None:
    for (page, fields), number in product(FORMS, ODD_NUMBERS):
        sent = {name: value.replace("{}", number) for name, value in fields.items()}
        with subtests.test(f"{page} {number}"), _undone():
            assert author_client.post(page, sent).status_code < 500


API = [
    "queries/?limit={}",
    "queries/delays/progress/?run={}",
    "queries/delays/batches/?limit={}",
    "queries/delays/logs/?lines={}",
    "applications/flights/waits/?hours={}",
]


@pytest.mark.guarantee("G-REQUEST-5")
def test_an_odd_number_in_the_api_is_refused(
    as_author: APIClient, delays: Stage, subtests: pytest.Subtests
) -> None:
    as_author.raise_request_exception = False
    for path, number in product(API, ODD_NUMBERS):
        with subtests.test(f"{path} {number}"), _undone():
            answer = as_author.get(f"/api/v1/{path.replace('{}', number)}")
            assert 400 <= answer.status_code < 500


# --- characters -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ("/saved-views/", {"view": "mine\x00", "name": "mine\x00"}),
        ("/queries/delays/labels/", {"labels": "a=b\x00"}),
        ("/queries/delays/snapshot/", {"batch": "3", "reason": "why\x00"}),
        ("/settings/tokens/", {"days": "9", "name": "ci\x00"}),
        ("/new/application/", {"name": "new", "conf": "a = b\x00"}),
    ],
)
def test_a_form_with_a_character_that_no_text_can_hold_is_refused(
    author_client: Client, delays: Stage, page: str, fields: dict[str, str]
) -> None:
    answer = author_client.post(page, fields, follow=True)
    assert answer.status_code < 500
    assert "which JSON and YAML can express" in answer.content.decode()


@pytest.mark.parametrize("character", ["\\u0000", "\\ud800"])
def test_a_definition_with_a_character_that_no_text_can_hold_is_refused(
    author_client: Client, delays: Stage, character: str
) -> None:
    body = json.dumps({"name": "new", "spec": SPEC | {"description": "a@"}})
    sent = {"tab": "json", "do": "create", "json": body.replace("@", character)}
    answer = author_client.post("/new/query/", sent)
    assert "which JSON and YAML can express" in answer.content.decode()
    assert answer.status_code == 422


def test_an_answer_with_half_of_a_surrogate_pair_is_written_with_its_escape() -> None:
    assert EscapingRenderer().render({"a": "é\ud800"}) == b'{"a":"\\u00e9\\ud800"}'
    assert EscapingRenderer().render({"a": "é"}) == '{"a":"é"}'.encode()


# --- where it comes from --------------------------------------------------------------
@pytest.mark.guarantee("G-REQUEST-8")
@pytest.mark.parametrize(
    ("referer", "leads_to"),
    [
        ("https://elsewhere.example/", "/"),
        ("//elsewhere.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("http://testserver/queries/delays/", "http://testserver/queries/delays/"),
        ("", "/"),
    ],
)
def test_a_refused_form_leads_back_and_never_away(
    author_client: Client, delays: Stage, referer: str, leads_to: str
) -> None:
    """The suggestion is none that is made: a conflict, told on the page that one came from."""
    sent = {"suggestion": "x", "revision": "1"}
    page = "/queries/delays/trigger/change/"
    answer = author_client.post(page, sent, headers={"Referer": referer})
    assert (answer.status_code, answer["Location"]) == (302, leads_to)


def _peer_seen(trusted: list[str], peer: str) -> str:
    """Return whose request Django thinks it is, when `peer` says that it is 203.0.113.9's."""
    seen = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    reached: Any = served(application, trusted=trusted)
    headers = [(b"x-forwarded-for", b"203.0.113.9")]
    scope = {
        "type": "http",
        "method": "GET",
        "headers": headers,
        "client": (peer, 1),
        "scheme": "http",
    }
    asyncio.run(reached(scope, None, None))
    return str(seen[0])


@pytest.mark.guarantee("G-REQUEST-7")
@pytest.mark.parametrize(
    ("trusted", "peer", "seen"),
    [
        ([], "127.0.0.1", "127.0.0.1"),
        (["10.0.0.0/8"], "192.0.2.1", "192.0.2.1"),
        (["10.0.0.0/8"], "10.1.2.3", "203.0.113.9"),
    ],
    ids=["nobody is trusted", "another is", "the proxy is"],
)
def test_only_a_trusted_proxy_says_whose_request_it_is(
    trusted: list[str], peer: str, seen: str
) -> None:
    assert _peer_seen(trusted, peer) == seen
