"""A driver that is a pod: it streams to S3, and comes back from whatever ends it."""

from collections.abc import Iterator

import pytest

from installation.machine.kubernetes import Kubernetes
from installation.machine.kubernetes_keys import DRIVERS
from tests.kubernetes.pod_system import APPLICATION, QUERY, PodSystem
from tests.storage.stores import S3Store

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark, pytest.mark.faults, pytest.mark.s3]

IN_NAMESPACE = ("--namespace", DRIVERS)


@pytest.fixture(scope="module")
def system(
    kubernetes: Kubernetes, s3: S3Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodSystem]:
    system = PodSystem(tmp_path_factory.mktemp("pods") / "home", kubernetes, s3)
    try:
        system.up()
        system.define()
        system.verb(QUERY, "start")
        yield system
    finally:
        system.close()


def test_a_driver_streams_as_a_pod_and_its_log_and_batches_are_seen(system: PodSystem) -> None:
    body = system.running(QUERY)
    assert system.past(1) > 1
    pod = system.pod()
    assert pod["metadata"]["labels"]["headgate/application"] == APPLICATION
    epoch = body["current_run"]["driver"]["epoch"]
    assert pod["metadata"]["labels"]["headgate/epoch"] == str(epoch)
    system.wait("its batches", lambda: system.batch(QUERY) > 1)
    assert system.owners()[-1]["host"] == f"pod:{pod['metadata']['uid']}"
    run = body["current_run"]["id"]
    system.wait("its log", lambda: "ready; seconds" in system.text(f"runs/{run}/log/"))
    system.check_rows()


def test_a_deleted_pod_is_replaced_at_once_and_no_row_is_lost_or_doubled(
    system: PodSystem,
) -> None:
    system.running(QUERY)
    pod = system.pod()["metadata"]
    system.cluster.kubectl("delete", "pod", pod["name"], "--wait=false", *IN_NAMESPACE)
    system.wait("another pod", lambda: system.pod()["metadata"]["uid"] != pod["uid"])
    system.running(QUERY)
    system.past(system.committed())
    system.check_rows()
