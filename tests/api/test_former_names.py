"""A state or an incident kind by its former name is rejected with its current name."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db

RULE = {"name": "nights", "channels": ["pager"], "selector": {"kinds": ["broken"]}}
MANIFEST = {
    "apiVersion": "headgate/v1",
    "kind": "AlertRule",
    "metadata": {"name": "nights"},
    "spec": {"channels": ["pager"], "selector": {"kinds": ["disk", "blind"]}},
}
SET = {"owner": "repo", "manifests": [{"path": "nights.yaml", "manifest": MANIFEST}]}
WINDOW = {
    "name": "move",
    "selector": {"kinds": ["zombie"]},
    "starts_at": "2036-01-05T03:00:00+00:00",
    "ends_at": "2036-01-05T04:00:00+00:00",
}


@pytest.mark.parametrize(
    ("method", "path", "sent", "field", "name"),
    [
        ("get", "queries/", {"phase": "BROKEN"}, "phase", "ON_HOLD"),
        ("get", "queries/", {"phase": "LOST"}, "phase", "UNREACHABLE"),
        ("get", "queries/", {"health": "ZOMBIE"}, "health", "QUERY_MISSING"),
        ("get", "queries/", {"health": "BLIND"}, "health", "NO_TELEMETRY"),
        ("post", "queries:stop/", {"selector": "phase=BROKEN"}, "selector", "ON_HOLD"),
        ("post", "queries:stop/", {"selector": "health!=BLIND"}, "selector", "NO_TELEMETRY"),
        ("post", "alert-rules/", RULE, "selector.kinds.0", "on-hold"),
        ("post", "maintenance/", WINDOW, "selector.kinds.0", "query-missing"),
        ("post", "apply/", SET, "spec.selector.kinds.1", "no-telemetry"),
    ],
)
def test_a_former_name_is_rejected_with_the_current_one(
    admin: User, method: str, path: str, sent: dict[str, Any], field: str, name: str
) -> None:
    client = APIClient()
    client.force_authenticate(admin)
    form = {"format": "json"} if method == "post" else {}
    answer = getattr(client, method)(f"/api/v1/{path}", sent, **form)
    assert answer.status_code == 422, answer.json()
    found = answer.json()
    (problem,) = found["objects"][0]["problems"] if "objects" in found else found["problems"]
    assert problem["field"].endswith(field)
    assert problem["way_out"] == f"It is now called {name}. Use that."
