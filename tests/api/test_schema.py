"""The OpenAPI document is valid, complete, and true: the API answers as it says."""

import html
import json
import re
import shlex
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver
from rest_framework.test import APIClient

from tests.api.document import document, made


def test_the_document_is_valid_openapi_31_without_a_warning() -> None:
    assert made("--validate")["openapi"] == "3.1.0"


def test_every_reference_in_the_document_leads_somewhere() -> None:
    text = document()
    names = set(text["components"]["schemas"])
    used = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            used.update([value["$ref"].rpartition("/")[2]] if "$ref" in value else [])
            for held in value.values():
                walk(held)
        elif isinstance(value, list):
            for held in value:
                walk(held)

    walk(text)
    assert {"QuerySpec", "ApplicationSpec", "Problem", "SqlQuery"} <= used
    assert used <= names


def test_every_address_is_described() -> None:
    described = set(document()["paths"])
    assert len(described) > 30
    patterns: Any = next(
        entry for entry in get_resolver().url_patterns if getattr(entry, "app_name", "") == "api"
    )
    undescribed = {"docs", "schema", "nothing"}
    for entry in patterns.url_patterns:
        if entry.name not in undescribed:
            path = "/api/v1/" + str(entry.pattern)
            for kind in ("str", "int", "uuid", "query"):
                path = path.replace(f"<{kind}:", "{")
            assert path.replace(">", "}") in described


def test_the_document_is_served(as_viewer: APIClient) -> None:
    answer = as_viewer.get("/api/v1/schema/")
    assert answer.status_code == 200
    assert answer.json()["openapi"] == "3.1.0"


def test_the_page_shows_every_operation_with_its_fields_and_an_example(
    client: Client, viewer: User
) -> None:
    client.force_login(viewer)
    page = client.get("/api/v1/docs/")
    assert page.status_code == 200
    text = html.unescape(page.content.decode())
    for path, methods in document()["paths"].items():
        for method, told in methods.items():
            item = text.partition(f'id="{told["operationId"]}"')[2].partition("</details>")[0]
            assert f'aria-label="Example of {method.upper()} {path}"' in item
            for parameter in told.get("parameters", ()):
                assert f"<code>{parameter['name']}</code>" in item
    assert set(re.findall(r'href="#(form-[^"]+)"', text)) <= set(
        re.findall(r'id="(form-[^"]+)"', text)
    )


def test_an_example_is_a_request_that_the_address_takes(
    client: Client, author: User, as_author: APIClient
) -> None:
    client.force_login(author)
    text = html.unescape(client.get("/api/v1/docs/").content.decode())
    item = text.partition('id="create_query"')[2].partition("</details>")[0]
    said = shlex.split(
        re.sub(r"<[^>]+>", "", item.partition("<pre")[2].partition(">")[2].partition("</pre>")[0])
    )
    assert said[:4] == ["curl", "-s", "-X", "POST"]
    assert said[4] == "http://testserver/api/v1/queries/"
    assert "Authorization: Token $HEADGATE_TOKEN" in said
    body = json.loads(said[said.index("-d") + 1])
    assert set(body) == {"name", "spec"}
    assert {"sources", "sql"} <= set(body["spec"])
    answer = as_author.post(said[4], body, format="json")
    # Its form is right; what it holds is to be filled in.
    assert answer.status_code == 422, answer.json()
    assert {problem["value"] for problem in answer.json()["problems"]} <= {"…", ""}, answer.json()


def test_a_stranger_to_the_documents_page_signs_in_first(client: Client, db: None) -> None:
    answer = client.get("/api/v1/docs/")
    assert answer.status_code == 302
    assert answer["Location"] == "/login/?next=/api/v1/docs/"
