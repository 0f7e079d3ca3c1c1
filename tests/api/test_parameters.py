"""A parameter that an address does not know is refused: it would act on everything, in earnest."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.urls import get_resolver
from rest_framework.test import APIClient

from queries.models.definitions import Query
from tests.api.conftest import SPEC
from tests.api.document import document
from tests.api.faults import check_told, definitions

pytestmark = pytest.mark.django_db

METHODS = ("get", "post", "put", "patch", "delete")
_PARTS = {"int": "1", "uuid": "00000000-0000-0000-0000-000000000000"}


def _operations() -> Iterator[tuple[str, str, str]]:
    """Yield each method with its address: as the document has it, and with its parts filled in."""
    api: Any = next(
        entry for entry in get_resolver().url_patterns if getattr(entry, "app_name", "") == "api"
    )
    for entry in api.url_patterns:
        pattern = str(entry.pattern)
        named = "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", pattern)
        address = "/api/v1/" + re.sub(r"<(\w+):\w+>", lambda at: _PARTS.get(at[1], "x"), pattern)
        for method in METHODS if entry.name not in ("docs", "schema", "nothing") else ():
            if hasattr(entry.callback.view_class, method):
                yield method, named, address


OPERATIONS = list(_operations())


def test_an_unknown_parameter_is_refused(as_admin: APIClient, subtests: pytest.Subtests) -> None:
    assert len(OPERATIONS) > 100
    for method, named, address in OPERATIONS:
        with subtests.test(f"{method} {named}"), transaction.atomic():
            _refuses_an_unknown_parameter(as_admin, method, named, address)
            transaction.set_rollback(True)


def _refuses_an_unknown_parameter(
    as_admin: APIClient, method: str, named: str, address: str
) -> None:
    unknown = {"aplication": "x"}
    described = document()["paths"][named][method].get("parameters", ())
    if not any(one["in"] == "query" and one["name"] == "dry_run" for one in described):
        unknown["dry_run"] = "true"
    sent = "&".join(f"{name}={value}" for name, value in unknown.items())
    answer = as_admin.generic(method.upper(), f"{address}?{sent}")
    assert answer.status_code == 422, answer.content
    problems = answer.json()["problems"]
    assert {one["field"]: one["value"] for one in problems} == unknown
    check_told(problems)


@pytest.mark.parametrize(
    ("method", "address", "body", "way_out"),
    [
        ("post", "queries/?dryrun=true", {"name": "new", "spec": SPEC}, "Did you mean dry_run?"),
        (
            "post",
            "applications/ticks/pools/?dry_run=true",
            {"name": "light"},
            "a dry run is not available",
        ),
        (
            "post",
            "alert-rules/?dry_run=true",
            {"name": "nights", "channels": []},
            "a dry run is not available",
        ),
        ("post", "apply/?dry_run=true", {"owner": "repo", "manifests": []}, "field of the body"),
        ("post", "queries:restart/?dry_run=true", {"selector": "name=ticks"}, "field of the body"),
        ("post", "queries/ticks/start/?dry_run=true", {}, "a dry run is not available"),
    ],
)
def test_what_was_to_be_tried_is_not_done(
    as_admin: APIClient, method: str, address: str, body: Any, way_out: str
) -> None:
    as_admin.post("/api/v1/queries/", {"name": "ticks", "spec": SPEC}, format="json")
    before = definitions()
    answer = getattr(as_admin, method)(f"/api/v1/{address}", body, format="json")
    assert answer.status_code == 422, answer.content
    assert way_out in answer.json()["problems"][0]["way_out"]
    assert definitions() == before
    assert Query.objects.get().name == "ticks"


def test_an_export_with_a_misspelt_filter_exports_nothing(as_viewer: APIClient) -> None:
    answer = as_viewer.get("/api/v1/export/?aplication=x")
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["way_out"] == "Did you mean application?"
