"""A definition that is refused sends nothing to the host that it names."""

import socket
from typing import Any

import pytest

from queries.brokers import options
from queries.brokers.options import Unusable, Wanted, require_quick
from queries.domain.errors import Invalid
from queries.services.definitions import catalog
from tests.scenarios.stage import Stage
from tests.security.attacker import listener, reached

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


def test_a_refused_definition_reaches_no_broker(stage: Stage, listener: socket.socket) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    now: dict[str, Any] = {"actor": "ana", "now": stage.now}
    refused = _spec(listener, sql="SELECT nonsense FROM elsewhere")
    with pytest.raises(Invalid):
        catalog.create_query(name="x", spec=refused, application="kafkas", **now)
    with pytest.raises(Invalid):
        catalog.check_query(name="x", spec=refused, application="kafkas")
    assert not reached(listener)


def test_a_refused_revision_reaches_no_broker(stage: Stage, listener: socket.socket) -> None:
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


def test_a_valid_one_asks_the_broker_that_it_names(stage: Stage, listener: socket.socket) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    spec = _spec(listener)
    catalog.create_query(name="x", spec=spec, application="kafkas", actor="ana", now=stage.now)
    assert reached(listener)


def test_a_pattern_that_backtracks_without_end_is_bounded() -> None:
    slow = Wanted(pattern="(a|aa)+b")
    # One name alone would take hours.
    assert not any(slow.matches("a" * 60) for _ in range(1_000))
    with pytest.raises(Unusable, match="takes too long to match"):
        require_quick(slow.pattern)
    options._TOO_SLOW.clear()


def test_a_usual_pattern_matches_whole_names() -> None:
    wanted = Wanted(pattern="flights-.*")
    assert wanted.matches("flights-2013")
    assert not wanted.matches("my-flights-2013")
    require_quick(wanted.pattern)
