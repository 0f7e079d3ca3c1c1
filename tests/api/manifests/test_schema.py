"""The JSON Schema that editors are given fits the manifests that an apply takes."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.conf import settings
from rest_framework.test import APIClient

from tests.api.manifests.conftest import Send, application, query

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

pytestmark = pytest.mark.django_db

DOCS = Path(settings.BASE_DIR) / "docs"


@pytest.fixture
def schema(as_viewer: APIClient) -> "Draft202012Validator":
    """Return what checks by the served document."""
    from jsonschema import Draft202012Validator  # four seconds that only one process has to take

    answer = as_viewer.get("/api/v1/schema/manifest.json")
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/schema+json"
    document = answer.json()
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


def documented() -> list[dict[str, Any]]:
    """Return the manifests that the documentation shows."""
    found = []
    for page in ("manifests.md", "cli.md", "ci.md", "code.md"):
        for text in re.findall(
            r"(?m)^(apiVersion: headgate/v1\n(?:.+\n)+)", (DOCS / page).read_text()
        ):
            documents = re.split(r"(?m)^(?:```|YAML)", text)[0]
            found += [one for one in yaml.safe_load_all(documents) if one is not None]
    return found


def test_the_manifests_of_the_documentation_are_valid(schema: "Draft202012Validator") -> None:
    manifests = documented()
    assert {one["kind"] for one in manifests} >= {"Application", "Query"}
    for one in manifests:
        schema.validate(one)


@pytest.mark.sql(
    "queries.selectors.access.own_teams",
    "queries.selectors.manifests.export",
)
def test_what_is_applied_and_exported_is_valid(
    schema: "Draft202012Validator", send: Send, as_viewer: APIClient
) -> None:
    script = {"kind": "script", "python_path": ["/srv/code"], "script": {"module": "job"}}
    sets = [
        application("shared", labels={"team": "data"}, memory="2g", pools=[{"name": "light"}]),
        query("in-it", application="shared", spec={"pool": "light"}, desired="STOPPED"),
        query("alone", labels={"tier": "one"}, spec={"checkpoint": "/data/alone"}),
    ]
    for one in (*sets, application("job", **script)):
        schema.validate(one)
    send(*sets)
    exported = as_viewer.get("/api/v1/export/").json()["manifests"]
    assert {one["manifest"]["metadata"]["name"] for one in exported} >= {"shared", "in-it", "alone"}
    for one in exported:
        schema.validate(one["manifest"])


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        query("bad") | {"kind": "Pool"},
        query("bad") | {"apiVersion": "headgate/v2"},
        query("bad") | {"status": {}},
        query("bad", spec={"schedule": "daily"}),
        query("bad", spec={"trigger": {"kind": "often"}}),
        query("bad", desired="FLYING"),
        query("bad", labels={"tier": 1}),
        application("bad", pools=[{"name": "a", "weight": 0}]),
    ],
)
def test_what_an_apply_refuses_by_its_form_is_not_valid(
    schema: "Draft202012Validator", manifest: dict[str, Any]
) -> None:
    assert not schema.is_valid(manifest)
