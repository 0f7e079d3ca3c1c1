"""A driver on the host with executors as pods: it streams, and says how an executor ended."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate_server.container_images import IMAGE
from installation.machine.kubernetes import Kubernetes
from installation.machine.kubernetes_keys import NAMESPACE
from queries.domain.hosts import Mode
from queries.domain.protocol import ExecutorSeen, RunState
from queries.domain.supervision.observation import missing_executors
from queries.jvm.compiled import our_jar
from tests.kubernetes.clusters import get
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.spark, pytest.mark.faults]

IN_NAMESPACE = ("--namespace", NAMESPACE)
#: Functions of users run in the Python of the image, not in that of the driver's host.
CODE = """
from pyspark.sql.functions import udf


def by_parity(spark, params):
    @udf("string")
    def name(value):
        import os
        return f"{'odd' if value % 2 else 'even'} {os.environ['HOSTNAME']}"

    numbers = spark.readStream.format("rate").option("rowsPerSecond", "20").load()
    return numbers.select(name("value").alias("parity"))
"""
QUERY = {
    "kind": "python",
    "function": "users_code:by_parity",
    "params": {},
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
}
#: Takes memory until the kernel ends a process of the container: the largest, the JVM.
EATS = (
    "open('/proc/self/oom_score_adj', 'w').write('0')\n"
    "rows = []\nwhile True: rows.append(bytearray(b'x' * 4_000_000))"
)


def conf(**changes: str) -> dict[str, str]:
    return {
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.container.image.pullPolicy": "Never",
        "spark.kubernetes.executor.request.cores": "100m",
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        **changes,
    }


@pytest.fixture(scope="module")
def home(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder of drivers that use the cluster's account for Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADGATE_KUBECONFIG", str(kubernetes.kubeconfig))
        yield tmp_path_factory.mktemp("pods")


@pytest.fixture(scope="module")
def driver(home: Path, kubernetes: Kubernetes) -> Iterator[DriverUnderTest]:
    code = home / "root"
    code.mkdir()
    (code / "users_code.py").write_text(CODE)
    driver = DriverUnderTest(home, application="flights")
    roots, digest = driver.launcher.freeze_code((str(code),))
    driver.launch(
        master=kubernetes.master,
        code_roots=roots,
        code_sha256=digest,
        jars=(str(our_jar(home / "classes")),),
        conf=conf(),
    )
    try:
        yield driver
    finally:
        driver.end()


def all_pods(kubernetes: Kubernetes, driver: DriverUnderTest) -> list[dict[str, Any]]:
    """Return the pods of a driver, by the labels that it gave them."""
    mine = f"headgate/application={driver.application},headgate/epoch={driver.epoch}"
    return list(get(kubernetes, "pods", "--selector", mine)["items"])


def pods(kubernetes: Kubernetes, driver: DriverUnderTest) -> list[dict[str, Any]]:
    """Return those that run."""
    everything = all_pods(kubernetes, driver)
    return [one for one in everything if one["status"].get("phase") == "Running"]


def local_folder(kubernetes: Kubernetes, pod: str) -> str:
    """Return the folder for an executor's blocks and spilled rows."""
    (container,) = get(kubernetes, "pod", pod)["spec"]["containers"]
    named = {one["name"]: one.get("value", "") for one in container["env"]}
    return str(named["SPARK_LOCAL_DIRS"])


def lost(driver: DriverUnderTest, number: str) -> ExecutorSeen | None:
    status = driver.sight().status
    seen = status.executors if status is not None else ()
    return next((one for one in seen if one.id == number and not one.active and one.reason), None)


def executor(kubernetes: Kubernetes, driver: DriverUnderTest) -> tuple[str, str]:
    """Return the number in Spark and the pod of the executor that is active."""

    def look() -> tuple[str, str] | None:
        status = driver.sight().status
        active = {one.id for one in status.executors if one.active} if status else set()
        for pod in pods(kubernetes, driver):
            number = pod["metadata"]["labels"]["spark-exec-id"]
            if number in active:
                return number, pod["metadata"]["name"]
        return None

    return wait_for(look, "an executor is active")


def commits(driver: DriverUnderTest, *, after: int = -1) -> int:
    """Return the newest batch, once one after `after` has been committed."""

    def look() -> int | None:
        run = driver.run(11)
        if run is None:
            return None
        assert run.state in (RunState.ABSENT, RunState.STARTING, RunState.RUNNING), run.error
        return run.last_batch if (run.last_batch or 0) > after else None

    return wait_for(look, f"a batch after {after}")


@pytest.mark.promise
def test_a_query_streams_in_pods_and_tells_how_each_executor_ended(
    kubernetes: Kubernetes, driver: DriverUnderTest
) -> None:
    driver.start(11, QUERY)
    driver.ready()
    newest = commits(driver, after=1)

    number, pod = executor(kubernetes, driver)
    assert local_folder(kubernetes, pod).startswith("/var/data/")  # not one of the driver's host
    assert re.fullmatch(r"hg-flights-[0-9a-f]{6}-1-exec-\d+", pod)
    with pytest.raises(subprocess.CalledProcessError):  # by the kernel
        kubernetes.kubectl("exec", pod, *IN_NAMESPACE, "--", "python3", "-c", EATS)
    ended = wait_for(lambda: lost(driver, number), "the reason of the executor's end")
    assert ended.reason.startswith("The pod used more than its memory limit (OOMKilled)")
    newest = commits(driver, after=newest + 1)

    number, pod = executor(kubernetes, driver)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    eviction["metadata"] = {"name": pod, "namespace": NAMESPACE}  # type: ignore[assignment]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    kubernetes.kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))
    wait_for(
        lambda: (ended := lost(driver, number)) and "was evicted" in ended.reason,
        "the reason is the eviction",
    )
    commits(driver, after=newest + 1)


@pytest.mark.walls
def test_executors_of_a_killed_driver_are_deleted_by_the_next_which_is_isolated(
    kubernetes: Kubernetes, driver: DriverUnderTest, home: Path
) -> None:
    driver.ready()
    executor(kubernetes, driver)
    driver.end()  # by SIGKILL
    assert all_pods(kubernetes, driver), "nobody deletes them"
    following = DriverUnderTest(
        home,
        application=driver.application,
        epoch=driver.epoch + 1,
        walls=Mode.BUBBLEWRAP,  # it sees the kubeconfig's folder
    )
    try:
        following.launch(master=kubernetes.master, conf=conf())
        wait_for(lambda: not all_pods(kubernetes, driver), "the former executors are deleted")
        executor(kubernetes, following)
    finally:
        following.end()


WAITING = {
    "image": (
        {"spark.kubernetes.container.image": "headgate/none:1"},
        "The image .*headgate/none:1 cannot be used",
    ),
    "exit": ({"spark.executor.extraJavaOptions": "-Xss1k"}, "exited with code 1"),
    "memory": (
        {"spark.executor.memory": "200g"},
        "No node can take the pod: .*Insufficient memory",
    ),
}


def test_why_no_executor_starts_is_told(kubernetes: Kubernetes, home: Path) -> None:
    drivers = {name: DriverUnderTest(home, application=name) for name in WAITING}

    def waits(driver: DriverUnderTest) -> str | None:
        status = driver.sight().status
        wanted = status.wanted if status is not None else None
        return missing_executors(wanted) if wanted is not None and wanted.pod_reason else None

    try:
        for name, (changes, _) in WAITING.items():
            drivers[name].launch(master=kubernetes.master, conf=conf(**changes))
        for name, (_, says) in WAITING.items():
            sentence = wait_for(partial(waits, drivers[name]), f"the reason for {name}")
            assert re.search(says, sentence)
        ended = drivers["exit"].wait_exit()
        assert ended.status is not None
        assert ended.status.error is not None
        assert "kept failing" in ended.status.error.root_cause
        assert "exited with code 1" in ended.status.error.root_cause
    finally:
        for driver in drivers.values():
            driver.end()
