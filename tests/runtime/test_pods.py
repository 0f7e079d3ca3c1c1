"""A driver whose executors are pods gives them an address, names and labels of its own epoch."""

import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from queries.domain.definitions.kubernetes import MASTER
from queries.domain.protocol import DriverSpec
from queries.runtime import pods

API = f"{MASTER}https://10.0.0.1:6443"


def spec(**changes: Any) -> DriverSpec:
    known = {"master": API, "application": "flights", "installation": "here", "epoch": 3}
    return SimpleNamespace(**{**known, "conf": {}, **changes})  # type: ignore[return-value]


def test_executors_connect_to_the_address_that_pods_see() -> None:
    conf = pods.executor_conf(spec(), "10.0.0.9")
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "10.0.0.9"
    assert pods.executor_conf(spec(master="yarn"), "10.0.0.9") == {}


def test_executors_of_each_epoch_have_names_of_their_own() -> None:
    def prefix(**changes: Any) -> str:
        return pods.executor_conf(spec(**changes), "h")["spark.kubernetes.executor.podNamePrefix"]

    others: list[dict[str, Any]] = [
        {},
        {"epoch": 4},
        {"application": "Flights"},
        {"installation": "there"},
    ]
    assert len({prefix(**other) for other in others}) == len(others)
    for name in ("flights", "A_b.c--", "x" * 200, "---"):
        found = prefix(application=name, epoch=2**31)
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", found)
        assert len(found) <= 47  # Spark's limit


def test_labels_tell_whose_the_executors_are() -> None:
    conf = pods.executor_conf(spec(application="flights-"), "h")
    assert conf["spark.kubernetes.executor.label.headgate/application"] == "flights"
    assert conf["spark.kubernetes.executor.label.headgate/epoch"] == "3"


def test_a_busy_api_server_has_a_minute_unless_an_admin_says_otherwise() -> None:
    name = "spark.kubernetes.driver.requestTimeout"
    assert pods.executor_conf(spec(), "h")[name] == "60000"
    assert pods.executor_conf(spec(conf={name: "5000"}), "h")[name] == "5000"


def test_an_address_that_was_set_is_taken() -> None:
    assert pods.own_address(f"{MASTER}https://127.0.0.1:6443", "10.0.0.9") == "10.0.0.9"


@pytest.mark.parametrize("url", ["https://127.0.0.1:6443", "127.0.0.1"])
def test_a_loopback_address_is_an_error_that_says_what_to_set(url: str) -> None:
    with pytest.raises(pods.NotReachable, match="Set HEADGATE_DRIVER_ADDRESS"):
        pods.own_address(f"{MASTER}{url}")


def test_the_address_is_that_on_the_route_to_the_api_server(monkeypatch: Any) -> None:
    class Route:
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> "Route":
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def connect(self, at: Any) -> None:
            self.at = at

        def getsockname(self) -> tuple[str, int]:
            assert self.at == ("10.0.0.1", 6443)
            return "10.0.0.7", 1

    monkeypatch.setattr(socket, "socket", Route)
    assert pods.own_address(API) == "10.0.0.7"


def test_a_host_without_an_address_is_an_error() -> None:
    with pytest.raises(pods.NotReachable, match="no route"):
        pods.own_address(f"{MASTER}https://nowhere.invalid:6443")
