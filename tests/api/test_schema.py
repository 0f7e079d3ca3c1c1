"""The OpenAPI document is valid, complete, and true: the API answers as it says."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver
from playwright.sync_api import BrowserContext
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
            for kind in ("str", "int", "uuid"):
                path = path.replace(f"<{kind}:", "{")
            assert path.replace(">", "}") in described


def test_the_document_is_served(as_viewer: APIClient) -> None:
    answer = as_viewer.get("/api/v1/schema/")
    assert answer.status_code == 200
    assert answer.json()["openapi"] == "3.1.0"


def test_the_documents_page_has_no_inline_script_or_style(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    page = client.get("/api/v1/docs/")
    text = page.content.decode()
    assert page.status_code == 200
    assert "<style" not in text
    assert "https://" not in text  # nothing from elsewhere
    assert "unsafe" not in page["Content-Security-Policy"]
    script = client.get("/api/v1/docs/?script=")
    assert script["Content-Type"].startswith("application/javascript")


def test_a_stranger_to_the_documents_page_signs_in_first(client: Client, db: None) -> None:
    answer = client.get("/api/v1/docs/")
    assert answer.status_code == 302
    assert answer["Location"] == "/login/?next=/api/v1/docs/"


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_documents_page_works_under_its_csp(
    live_server: Any, client: Client, viewer: User, context: BrowserContext
) -> None:
    client.force_login(viewer)
    cookies: Any = [
        {"name": name, "value": morsel.value, "url": live_server.url}
        for name, morsel in client.cookies.items()
    ]
    complaints: list[str] = []
    context.add_cookies(cookies)
    page = context.new_page()
    page.on("console", lambda it: complaints.append(it.text) if it.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{live_server.url}/api/v1/docs/")
    page.get_by_text("List queries by name.").first.wait_for(timeout=60_000)
    assert complaints == []
