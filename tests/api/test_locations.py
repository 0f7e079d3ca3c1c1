"""`Location` has one form: the path of what was made or begun, which a GET answers."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from tests.api.conftest import SPEC, as_admin, calling
from tests.api.document import document
from tests.scenarios.stage import Stage
from tests.services.code.archives import packed

__all__ = ["as_admin", "calling"]

pytestmark = pytest.mark.django_db

MAIL = {"host": "mail.example.org", "sender": "h@example.org", "recipients": ["o@example.org"]}
WINDOW = {"starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-01T01:00:00Z"}
MANIFEST = {
    "apiVersion": "headgate/v1",
    "kind": "Query",
    "metadata": {"name": "deployed"},
    "spec": SPEC,
}

#: What makes or begins something, by its operation in the document: the address and the body.
CREATES: dict[str, tuple[str, Any]] = {
    "create_query": ("queries/", {"name": "ticks", "spec": SPEC}),
    "create_application": ("applications/", {"name": "shared", "spec": {}}),
    "create_pool": ("applications/flights/pools/", {"name": "light"}),
    "create_team": ("teams/", {"name": "data"}),
    "create_token": ("tokens/", {"user": "ada", "name": "ci"}),
    "create_group_role": ("group-roles/", {"group": "Data", "role": "author"}),
    "create_alert_channel": (
        "alert-channels/",
        {"name": "ops", "kind": "mail", "settings": MAIL},
    ),
    "create_alert_rule": ("alert-rules/", {"name": "nights", "channels": ["mail"]}),
    "create_maintenance": ("maintenance/", {"name": "night", **WINDOW}),
    "declare_catalog": (
        "catalogs/",
        {"name": "lake", "type": "rest", "address": "https://c.example.org"},
    ),
    "list_code_host": ("code-hosts/", {"host": "git.example.org"}),
    "bind_secret": (
        "secret-bindings/",
        {"secret": "env:KEY", "holder": "flights", "hosts": ["a.example.org"]},
    ),
    "allow_path": ("allowed-paths/", {"application": "flights", "path": "s3a://bucket/flights"}),
    "upload_code": ("code/", packed({"job.py": "x = 1\n"})),
    "deploy": (
        "deploys/",
        {"apply": {"owner": "repo", "manifests": [{"path": "a.yaml", "manifest": MANIFEST}]}},
    ),
    "start_query": ("queries/delays/start/", {}),
    "stop_application": ("applications/flights/stop/", {}),
    "start_queries": ("queries:start/", {"selector": "name=delays"}),
    "stop_queries": ("queries:stop/", {"selector": "name=delays"}),
    "restart_queries": ("queries:restart/", {"selector": "name=delays"}),
}


@pytest.fixture
def stage(admin: User, settings: Settings, tmp_path: Any) -> Stage:
    """Return an installation with a query of an application, and a channel."""
    settings.CODE_DIR = tmp_path / "code"
    stage = Stage()
    stage.application("flights")
    stage.query("delays", "flights")
    return stage


@pytest.mark.parametrize("operation", CREATES)
def test_it_is_the_path_of_what_was_made(as_admin: APIClient, stage: Stage, operation: str) -> None:
    address, sent = CREATES[operation]
    if operation == "create_alert_rule":
        channel = {"name": "mail", "kind": "mail", "settings": MAIL}
        as_admin.post("/api/v1/alert-channels/", channel, format="json")
    more: Any = {"content_type": "application/x-tar"} if isinstance(sent, bytes) else {}
    answer: Any = (
        as_admin.generic("POST", f"/api/v1/{address}", sent, **more)
        if more
        else as_admin.post(f"/api/v1/{address}", sent, format="json")
    )
    assert answer.status_code in (201, 202), answer.content
    location = answer["Location"]
    assert location.startswith("/api/v1/")
    assert location.endswith("/")
    assert as_admin.get(location).status_code == 200


def test_each_post_that_makes_something_is_tried() -> None:
    """What answers 202 with one operation goes through `accepted`, which `start_query` tries."""
    made = set()
    for methods in document()["paths"].values():
        responses = methods.get("post", {}).get("responses", {})
        one = {"$ref": "#/components/schemas/OperationBody"}
        schemas = [
            responses[code].get("content", {}).get("application/json", {}).get("schema")
            for code in ("201", "202")
            if code in responses
        ]
        if any(schema != one for schema in schemas):
            made.add(methods["post"]["operationId"])
    assert made == set(CREATES) - {"start_query"}
