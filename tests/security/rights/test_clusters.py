"""Where pods run is an admin's decision, also for authors who may write Python."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from queries.models.access.accounts import Grant
from queries.models.applications import Application
from queries.roles import Role
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

_ADDRESS = "/api/v1/applications/flights/"
_MASTER = "k8s://https://10.0.0.1:6443"
_IMAGE = {"spark.kubernetes.container.image": "example.org/spark:1"}
_SIZE = {"spark.kubernetes.executor.request.cores": "500m", "spark.executor.memory": "2g"}


def python_author(name: str, role: Role) -> User:
    user = User.objects.create_user(name)
    user.groups.add(Group.objects.get(name=role))
    Grant.objects.create(user=user, write_python=True)
    return user


@pytest.fixture
def sam(db: None) -> User:
    """Return an author who may write Python."""
    return python_author("sam", Role.AUTHOR)


@pytest.fixture
def ada(db: None) -> User:
    """Return an admin who may write Python."""
    return python_author("ada", Role.ADMIN)


@pytest.fixture
def world(stage: Stage) -> Stage:
    stage.application("flights", master="local[4]", connectors=[], env={})
    return stage


def patch(client: Client, user: User, spec: dict[str, Any]) -> Any:
    client.force_login(user)
    return client.patch(_ADDRESS, json.dumps({"spec": spec}), content_type="application/json")


@pytest.mark.guarantee("G-CONFIG-7")
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"master": _MASTER, "conf": _IMAGE}, "master"),
        ({"conf": _IMAGE}, "conf.spark.kubernetes.container.image"),
        ({"conf": {"spark.kubernetes.namespace": "kube-system"}}, "spark.kubernetes.namespace"),
        ({"conf": {"spark.kubernetes.executor.volumes.hostPath.x.mount.path": "/"}}, "volumes"),
        (
            {"conf": {"spark.kubernetes.executor.podTemplateFile": "file:///tmp/t.yaml"}},
            "executor.podTemplateFile",
        ),
        (
            {
                "driver": "pod",
                "conf": {"spark.kubernetes.driver.container.image": "example.org/mine:1"},
            },
            "driver.container.image",
        ),
        (
            {"conf": {"spark.kubernetes.driver.node.selector.pool": "x"}},
            "driver.node.selector.pool",
        ),
    ],
)
def test_an_author_cannot_choose_where_pods_run(
    client: Client, world: Stage, sam: User, spec: dict[str, Any], field: str
) -> None:
    before = Application.objects.get(name="flights").revisions.count()
    refused = patch(client, sam, spec)
    assert refused.status_code == 403
    assert field in refused.json()["detail"]
    assert "admin" in refused.json()["way_out"]
    assert Application.objects.get(name="flights").revisions.count() == before


def test_an_admin_chooses_and_an_author_then_sets_sizes(
    client: Client, world: Stage, sam: User, ada: User
) -> None:
    chosen = {"master": _MASTER, "conf": _IMAGE}
    assert patch(client, ada, chosen).status_code == 200
    assert patch(client, sam, {"conf": {**_IMAGE, **_SIZE}}).status_code == 200
    moved = patch(client, sam, {"master": "k8s://https://10.0.0.2:6443"})
    assert moved.status_code == 403
