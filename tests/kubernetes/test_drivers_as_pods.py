"""A driver that is a pod: it streams to S3, and comes back from whatever ends it."""

import os
from collections.abc import Callable, Iterator

import pytest

from installation.machine.kubernetes import Kubernetes
from tests.kubernetes import pod_faults
from tests.kubernetes.pod_system import APPLICATION, QUERY, PodSystem, streaming
from tests.storage.stores import S3Store

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark, pytest.mark.faults, pytest.mark.s3]


@pytest.fixture(scope="module")
def system(
    kubernetes: Kubernetes, s3: S3Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodSystem]:
    with streaming(tmp_path_factory.mktemp("pods"), kubernetes, s3) as system:
        yield system


@pytest.mark.promise
def test_a_driver_streams_as_a_pod_and_its_log_and_batches_are_seen(system: PodSystem) -> None:
    body = system.running(QUERY)
    system.past(1)
    metadata = system.pod()["metadata"]
    assert metadata["labels"]["headgate/application"] == APPLICATION
    assert system.owners()[-1]["host"] == f"pod:{metadata['uid']}"
    system.wait("its batches", lambda: system.batch(QUERY) > 1)
    run = body["current_run"]["id"]
    system.wait("its log", lambda: "ready; seconds" in system.text(f"runs/{run}/log/"))
    cluster = system.cluster
    if os.stat(cluster.built).st_dev == os.stat(cluster.root).st_dev:  # jars have the same order
        assert "/opt/headgate/classes/spark.jsa" in pod_faults.files_of_jvm(system)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        pytest.param(
            pod_faults.delete, "deleted by a user or by Kubernetes", marks=pytest.mark.promise
        ),
        (pod_faults.drain, "evicted"),
        (pod_faults.kill_python, "killed by SIGKILL"),
        (pod_faults.kill_jvm, "JVM killed by SIGKILL"),
        (pod_faults.out_of_memory, "memory"),
    ],
)
def test_a_query_goes_on_after_its_pod_ended_with_every_window_once(
    system: PodSystem, fault: Callable[[PodSystem], None], told: str
) -> None:
    system.running(QUERY)
    system.past(system.committed())
    pod_faults.measured(system, fault)
    system.running(QUERY)
    assert told in system.get(f"queries/{QUERY}/failures/")["results"][0]["root_cause"]
    system.past(system.committed() + 6)
    assert system.check_rows() > 0


def test_a_pod_that_is_gone_is_not_dead_so_its_successor_waits_and_only_one_commits(
    system: PodSystem,
) -> None:
    system.running(QUERY)
    former = system.pod()
    with pod_faults.lost_node(system):
        pod_faults.measured(system, pod_faults.force_delete)
        body = system.running(QUERY)
        assert system.pod()["spec"]["nodeName"] != former["spec"]["nodeName"]
        failure = system.get(f"queries/{QUERY}/failures/")["results"][0]
        assert "its node has not reported its end" in failure["root_cause"]
        assert body["current_run"]["epoch"] == system.owners()[-1]["epoch"]
        system.past(system.committed() + 6)
        assert system.check_rows() > 0
