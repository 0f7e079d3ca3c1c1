"""A definition that is refused sends nothing to the host that it names."""

import socket
from typing import Any

import pytest
from django.contrib.auth.models import User

from queries.brokers import options
from queries.brokers.options import TopicSelection, Unusable, require_quick
from queries.domain.errors import Invalid
from queries.domain.manifests.sets import parse_set
from queries.models.definitions import Query
from queries.selectors.kafka.lag import lag_of
from queries.services.definitions import catalog
from queries.services.kafka.lag import look_at_sources
from queries.services.manifests.applying import apply_set
from tests.api.manifests.conftest import body
from tests.api.manifests.conftest import query as manifest
from tests.scenarios.stage import Stage
from tests.security.attacker import listener, reached
from tests.services.secrets.binding import bind

__all__ = ["listener"]  # a fixture

pytestmark = pytest.mark.django_db


def _spec(server: socket.socket, **changes: Any) -> dict[str, Any]:
    address = "{}:{}".format(*server.getsockname())
    kafka = {"kafka.bootstrap.servers": address, "subscribe": "in"}
    return {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "kafka", "options": kafka}],
        "sql": "SELECT key, value FROM ticks",
        "sink": {"format": "noop"},
        "trigger": {"kind": "continuous", "interval": "1 second"},
        **changes,
    }


@pytest.mark.guarantee("G-SECRET-8")
def test_a_refused_definition_reaches_no_broker(
    stage: Stage, listener: socket.socket, settings: Any
) -> None:
    settings.BROKER_HOSTS = ["127.0.0.1"]
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    now: dict[str, Any] = {"actor": "ana", "now": stage.now}
    refused = _spec(listener, sql="SELECT nonsense FROM elsewhere")
    with pytest.raises(Invalid):
        catalog.create_query(name="x", spec=refused, application="kafkas", **now)
    with pytest.raises(Invalid):
        catalog.plan_query(name="x", spec=refused, application="kafkas")
    assert not reached(listener)


def test_a_refused_revision_reaches_no_broker(
    stage: Stage, listener: socket.socket, settings: Any
) -> None:
    settings.BROKER_HOSTS = ["127.0.0.1"]
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    query = stage.query("delays", "kafkas")
    with pytest.raises(Invalid):
        catalog.revise_query(
            query=query,
            spec=_spec(listener, sink={"format": "no such format"}),
            expected_revision=1,
            actor="ana",
            now=stage.now,
        )
    assert not reached(listener)


@pytest.mark.guarantee("G-SECRET-10")
def test_a_valid_one_asks_no_broker_that_nobody_has_allowed(
    stage: Stage, listener: socket.socket
) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    spec, now = _spec(listener), stage.now
    catalog.plan_query(name="x", spec=spec, application="kafkas")
    query = catalog.create_query(name="x", spec=spec, application="kafkas", actor="ana", now=now)
    again = {**spec, "description": "again"}
    catalog.revise_query(query=query, spec=again, expected_revision=1, actor="ana", now=now)
    look_at_sources(now=now, query_ids=[query.pk])
    assert not reached(listener)
    (said,) = lag_of(query, now=now).errors
    assert "HEADGATE_BROKER_HOSTS" in said


def test_an_apply_asks_none_either(
    stage: Stage, listener: socket.socket, settings: Any, author: User
) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])

    def apply(name: str) -> None:
        sent = body(manifest(name, application="kafkas", spec=_spec(listener)))
        apply_set(parse_set(sent), user=author, actor="aude", via="rest", now=stage.now)

    apply("x")
    assert Query.objects.filter(name="x").exists()
    assert not reached(listener)
    settings.BROKER_HOSTS = ["127.0.0.1"]
    apply("y")
    assert reached(listener)


@pytest.mark.parametrize("hosts", [["127.0.0.1"], ["*"]], ids=["its host", "any"])
def test_a_valid_one_asks_the_broker_that_an_admin_has_allowed(
    stage: Stage, listener: socket.socket, settings: Any, hosts: list[str]
) -> None:
    settings.BROKER_HOSTS = hosts
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    spec = _spec(listener)
    catalog.create_query(name="x", spec=spec, application="kafkas", actor="ana", now=stage.now)
    assert reached(listener)


@pytest.mark.guarantee("G-SECRET-10")
def test_a_binding_for_the_host_allows_it_and_one_for_anywhere_does_not(
    stage: Stage, listener: socket.socket
) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    spec = _spec(listener)
    bind("file:jaas", "kafkas")
    catalog.plan_query(name="x", spec=spec, application="kafkas")
    assert not reached(listener)
    bind("file:jaas", "kafkas", "127.0.0.1")
    catalog.plan_query(name="x", spec=spec, application="kafkas")
    assert reached(listener)


def test_a_query_that_was_started_has_its_lag_read_and_a_changed_one_not_before_its_start(
    listener: socket.socket,
) -> None:
    stage = Stage(obliging=True)
    stage.application("kafkas", connectors=[])
    trigger = {"trigger": {"kind": "processing_time"}}
    query = stage.query("x", "kafkas", **_spec(listener, **trigger))
    stage.start("x")
    stage.ready("kafkas")
    look_at_sources(now=stage.now, query_ids=[query.pk])
    assert reached(listener)
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.5)
        query.runs.update(outcome="STOPPED")
        changed = {**_spec(other, **trigger)}
        query.revisions.create(
            number=2, kind="sql", spec=changed, author="ana", created_at=stage.now
        )
        look_at_sources(now=stage.now, query_ids=[query.pk])
        assert not reached(other)


@pytest.mark.guarantee("G-REQUEST-6")
def test_a_pattern_that_backtracks_without_end_is_bounded() -> None:
    slow = TopicSelection(pattern="(a|aa)+b")
    # One name alone would take hours.
    assert not any(slow.matches("a" * 60) for _ in range(1_000))
    with pytest.raises(Unusable, match="takes too long to match"):
        require_quick(slow.pattern)
    options._TOO_SLOW.clear()


def test_a_usual_pattern_matches_whole_names() -> None:
    wanted = TopicSelection(pattern="flights-.*")
    assert wanted.matches("flights-2013")
    assert not wanted.matches("my-flights-2013")
    require_quick(wanted.pattern)
