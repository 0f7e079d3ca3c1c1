"""The async operators of a query over REST."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.scenarios.stage import Stage
from tests.web.test_async_calls import tell

pytestmark = pytest.mark.django_db


def test_operators_come_with_figures_bound_and_advice(
    client: Client, viewer: User, stage: Stage
) -> None:
    client.force_login(viewer)
    tell(stage, errors=2000.0)
    (one,) = client.get("/api/v1/queries/delays/async/").json()["operators"]
    assert one["name"] == "planes"
    assert (one["calls"], one["failed"]) == (30_000, 6000)
    assert one["latency_ms"] == [6.0, 8.0, 9.0]
    assert one["possible_per_second"] == pytest.approx(10_000)
    assert (one["bound"], one["number"]) == ("limit", 128)
    assert "128 calls in flight" in one["advice"]


def test_a_query_without_them_has_an_empty_list(client: Client, viewer: User, stage: Stage) -> None:
    client.force_login(viewer)
    stage.query("delays")
    assert client.get("/api/v1/queries/delays/async/").json() == {"operators": []}
