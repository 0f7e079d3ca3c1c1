"""A run that does not end, on the pages: what is said, and how an operator ends its driver."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.domain.states import OperationOutcome, Phase, StopMode
from queries.models.history import Operation
from tests.scenarios.stage import Stage


@pytest.fixture
def otto(client: Client, operator: User) -> Client:
    client.force_login(operator)
    return client


@pytest.fixture
def hanging(stage: Stage) -> Stage:
    """The stop of "orders" hangs in a driver that two others share."""
    stage.application("shop")
    for name in ("clicks", "delays", "orders"):
        stage.query(name, "shop")
        stage.start(name)
    stage.ready("shop")
    for name in ("clicks", "delays", "orders"):
        stage.commit(name)
    stage.stop("orders", StopMode.NOW)
    stage.launcher.hang_stop(stage.run("orders").pk)
    stage.look()
    return stage


def _page(client: Client, address: str) -> str:
    answer: Any = client.get(address)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_the_page_of_a_query_whose_stop_hangs_says_so_and_offers_the_end_of_its_driver(
    otto: Client, hanging: Stage
) -> None:
    html = _page(otto, "/queries/orders/")
    assert "its checkpoint stays locked" in html
    assert "which also restarts clicks and delays" in html
    assert 'data-can="start stop-now end-driver"' in html
    assert 'href="/applications/shop/restart/"' in html
    assert 'data-can="stop restart"' in _page(otto, "/queries/clicks/")
    assert "orders" in _page(otto, "/queries/?group=attention")


def test_a_viewer_is_not_offered_the_end_of_a_driver(
    client: Client, viewer: User, hanging: Stage
) -> None:
    client.force_login(viewer)
    assert 'href="/applications/shop/restart/"' not in _page(client, "/queries/orders/")


def test_the_end_of_the_driver_is_confirmed_after_who_is_affected_is_listed(
    otto: Client, hanging: Stage
) -> None:
    html = _page(otto, "/applications/shop/restart/")
    assert "A thread of orders does not end: the driver is killed" in html
    assert "clicks and delays stop after the batch in flight" in html
    assert hanging.driver("shop").end_wanted == ""
    otto.post("/applications/shop/restart/")
    hanging.look()
    assert hanging.driver("shop").end_wanted == "REPLACED"
    for name in ("clicks", "delays"):
        hanging.launcher.end_run(hanging.run(name).pk)
    hanging.look()
    assert "terminate" in [call.verb for call in hanging.launcher.calls]
    hanging.launcher.leave("shop")
    hanging.look()
    assert hanging.phase("orders") == Phase.STOPPED
    stop = Operation.objects.filter(query__name="orders", verb="stop").get()
    assert stop.outcome == OperationOutcome.DONE
