"""The only host is slow or its worker has stopped: nobody is told that a machine may be lost."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.domain.states import StopMode
from queries.models.drivers import Host
from queries.selectors.hosts import away
from queries.services.procedures.engine import _waits_for
from queries.services.supervision.application_operations import archive_application
from queries.services.supervision.operations import request_stop
from queries.views.supervision.actions import while_away
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

SLOW = "is slow or has stopped"


@pytest.fixture
def host(stage: Stage) -> str:
    """Return the name of the only host, whose worker was last heard of 40 s ago."""
    stage.query("delays")
    stage.up("delays")
    name: str = stage.row("delays").application.host
    seen = Now() - timedelta(seconds=40)
    Host.objects.create(name=name, seen_at=seen, steady_since=seen)
    return name


def test_a_request_says_that_the_worker_is_slow(stage: Stage, host: str) -> None:
    query = stage.row("delays")
    operation = request_stop(query=query, mode=StopMode.GRACEFUL, actor="olga", now=stage.now)
    assert operation.detail.text.startswith(f"The worker on host {host} {SLOW}; its last heartbeat")
    assert operation.detail.text.endswith("The stop takes effect as soon as it works again.")


def test_the_consequences_of_a_request_say_so_too(stage: Stage, host: str) -> None:
    silent = away(stage.row("delays").application)
    assert silent is not None
    [said] = while_away(silent, "stop")
    assert SLOW in said
    assert "declare" not in said
    assert _waits_for(silent) == Because(Detail.STEPS_SLOW, {"host": host})


def test_the_applications_page_says_so_and_does_not_offer_to_declare_it_gone(
    stage: Stage, host: str, operator: User, client: Client
) -> None:
    client.force_login(operator)
    html = client.get(reverse("application", args=["delays"])).content.decode()
    assert f"The worker on host {host} {SLOW}" in html
    assert reverse("application-host-gone", args=["delays"]) not in html


def test_a_refusal_offers_to_wait(stage: Stage, host: str) -> None:
    query = stage.row("delays")
    query.archived_at = stage.now
    query.save()
    with pytest.raises(NotAllowed, match="has not ended yet") as refused:
        archive_application(application=query.application, actor="ada", now=stage.now)
    assert "Wait until the worker has caught up." in (refused.value.way_out or "")


def test_beside_another_host_the_machine_may_be_lost(stage: Stage, host: str) -> None:
    Host.objects.create(name="other", seen_at=Now(), steady_since=Now() - timedelta(seconds=99))
    silent = away(stage.row("delays").application)
    assert silent is not None
    assert "declared gone" in while_away(silent, "stop")[0]
    assert "declare it gone" in silent.way_out
