"""A driver that is a pod with executors as pods: they end with it, and each window is once."""

from collections.abc import Iterator
from typing import Any

import pytest

from installation.machine.kubernetes import Kubernetes
from tests.kubernetes import pod_faults
from tests.kubernetes.pod_system import APPLICATION, QUERY, PodSystem, streaming
from tests.storage.stores import S3Store

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark, pytest.mark.faults, pytest.mark.s3]

EXECUTORS = 2


@pytest.fixture(scope="module")
def system(
    kubernetes: Kubernetes, s3: S3Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodSystem]:
    with streaming(tmp_path_factory.mktemp("pods"), kubernetes, s3, executors=EXECUTORS) as system:
        yield system


def until_all_run(system: PodSystem) -> dict[str, Any]:
    """Wait until the query commits with all of its executors; return the driver's pod."""
    system.running(QUERY)
    system.past(system.committed())
    pod = system.pod()
    epoch = pod["metadata"]["labels"]["headgate/epoch"]

    def all_run() -> bool:
        epochs = [one["metadata"]["labels"]["headgate/epoch"] for one in system.executors()]
        return epochs == [epoch] * EXECUTORS

    system.wait("all executors, and no other driver's", all_run)
    return pod


def test_the_drivers_pod_owns_its_executors_and_the_application_lists_them(
    system: PodSystem,
) -> None:
    pod = until_all_run(system)
    for executor in system.executors():
        (owner,) = executor["metadata"]["ownerReferences"]
        assert owner["uid"] == pod["metadata"]["uid"]
        assert executor["spec"]["automountServiceAccountToken"] is False

    def listed() -> bool:
        driver = system.get(f"applications/{APPLICATION}/")["driver"] or {}
        return sum(bool(one["active"]) for one in driver.get("executors") or ()) == EXECUTORS

    system.wait("the executors in REST", listed)


def test_an_executor_out_of_memory_is_told_and_replaced(system: PodSystem) -> None:
    pod = until_all_run(system)
    before = system.batch(QUERY)
    pod_faults.executor_out_of_memory(system)

    def told() -> bool:
        executors = system.get(f"applications/{APPLICATION}/")["driver"]["executors"]
        return any("memory" in (one["reason"] or "") for one in executors)

    system.wait("the reason", told)
    assert until_all_run(system)["metadata"]["uid"] == pod["metadata"]["uid"]
    system.wait("more batches", lambda: system.batch(QUERY) > before + 3)
    system.check_rows()


def test_executors_end_with_their_driver_and_its_successor_has_its_own(
    system: PodSystem,
) -> None:
    former = until_all_run(system)
    assert pod_faults.measured(system, pod_faults.kill_jvm).executors_s > 0
    assert until_all_run(system)["metadata"]["uid"] != former["metadata"]["uid"]
    system.past(system.committed() + 6)
    assert system.check_rows() > 0


def test_executors_of_a_driver_on_a_lost_node_do_not_outlive_its_deletion(
    system: PodSystem,
) -> None:
    former = until_all_run(system)
    with pod_faults.lost_node(system):
        assert pod_faults.measured(system, pod_faults.force_delete).executors_s > 0
        assert system.pod()["spec"]["nodeName"] != former["spec"]["nodeName"]
        system.past(system.committed() + 6)
        assert system.check_rows() > 0
    until_all_run(system)
    assert system.check_rows() > 0
