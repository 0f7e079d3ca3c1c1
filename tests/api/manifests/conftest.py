"""Sets of manifests as CI sends them."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.api.conftest import SPEC

Send = Callable[..., Any]


def query(name: str, *, application: str = "", **more: Any) -> dict[str, Any]:
    """Return the manifest of a query on the rate source; `more` are fields beside its spec."""
    metadata = {"name": name} | ({"application": application} if application else {})
    spec = SPEC | more.pop("spec", {})
    labels = more.pop("labels", None)
    if labels is not None:
        metadata["labels"] = labels
    return {
        "apiVersion": "headgate/v1",
        "kind": "Query",
        "metadata": metadata,
        "spec": spec,
        **more,
    }


def application(name: str, **spec: Any) -> dict[str, Any]:
    """Return the manifest of an application."""
    labels = spec.pop("labels", {})
    return {
        "apiVersion": "headgate/v1",
        "kind": "Application",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def body(*manifests: dict[str, Any], owner: str = "repo", **more: Any) -> dict[str, Any]:
    """Return the body of an apply."""
    files = [{"path": f"{one['metadata']['name']}.yaml", "manifest": one} for one in manifests]
    return {"owner": owner, "manifests": files, **more}


@pytest.fixture
def send(as_author: APIClient) -> Send:
    """Return Aude's apply; it answers with the body, and expects the status."""

    def apply(*manifests: dict[str, Any], status: int = 200, **more: Any) -> Any:
        found = as_author.post("/api/v1/apply/", body(*manifests, **more), format="json")
        assert found.status_code == status, found.json()
        return found.json()

    return apply


def outcomes(answer: Any) -> dict[str, str]:
    """Return the outcome of each object by its name."""
    return {one["name"]: one["outcome"] for one in answer["objects"]}
