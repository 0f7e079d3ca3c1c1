"""The end of a pod, or its waiting, is a sentence that says what to change."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.pods import (
    LONGEST,
    DriverPod,
    ExecutorPod,
    death,
    driver_pod,
    executor_pods,
    grace_s,
    pod_changes,
)

#: Spark's text about a pod that has ended, with the whitespace that it has there.
EXITED = """
The executor with id 1 exited with exit code {code}{why}.



The API gave the following container statuses:


\t container name: spark-kubernetes-executor
\t container image: example.org/spark:1
\t container state: terminated
\t container started at: 2026-11-30T09:24:31Z
\t container finished at: 2026-11-30T09:24:40Z
\t exit code: {code}
\t termination reason: {reason}
      """
EVICTED = """
The executor with id 3 exited with exit code -1.

The API gave the following brief reason: Evicted
The API gave the following message: The node was low on resource: ephemeral-storage.

The API gave the following container statuses:

      """
DELETED = "The executor with id 3 was deleted by a user or the framework."


def listed(**status: Any) -> str:
    """Return the API server's answer with one executor's pod."""
    labels = {"spark-exec-id": "7", "spark-role": "executor", "headgate/epoch": "12"}
    pod = {"metadata": {"name": "hg-flights-exec-7", "labels": labels}, "status": status}
    item = {**pod, "spec": {"nodeName": "node-1"}}
    return json.dumps({"metadata": {"resourceVersion": "41"}, "items": [item]})


def pod(**status: Any) -> ExecutorPod:
    (found,), version = executor_pods(listed(**status))
    assert version == "41"
    assert (found.executor, found.epoch, found.node) == ("7", 12, "node-1")
    return found


@pytest.mark.parametrize(
    ("reported", "begins"),
    [
        (
            EXITED.format(code=137, why="(SIGKILL, possible container OOM)", reason="OOMKilled"),
            "The pod used more than its memory limit (OOMKilled); raise",
        ),
        (
            EXITED.format(code=137, why="(SIGKILL, possible container OOM)", reason="Error"),
            "The executor exited with code 137: killed from outside with SIGKILL.",
        ),
        (
            EXITED.format(code=52, why="(JVM OOM)", reason="Error"),
            "The executor exited with code 52: its JVM ran out of memory.",
        ),
        (EXITED.format(code=3, why="", reason="Error"), "The executor exited with code 3."),
        (EVICTED, "The pod ended (Evicted): The node was low on resource: ephemeral-storage."),
        (DELETED, "The pod was deleted by a user, Kubernetes or Spark."),
        ("worker lost", "worker lost"),
        ("", ""),
    ],
)
def test_sparks_own_report_becomes_a_sentence(reported: str, begins: str) -> None:
    assert death(reported).startswith(begins)


def test_a_memory_limit_that_killed_only_another_container_is_still_the_cause() -> None:
    status = {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled"}}}]}
    assert "memory limit" in death(DELETED, pod(phase="Failed", **status))


def test_an_exit_is_known_from_the_pod_before_spark_reports_it() -> None:
    status = {"containerStatuses": [{"state": {"terminated": {"exitCode": 53, "reason": "Error"}}}]}
    ended = pod(phase="Failed", **status).ended
    assert ended == "The executor exited with code 53: it could not make its local folder."
    done = {"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}
    assert pod(phase="Succeeded", **done).ended == ""


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("EvictionByEvictionAPI", "evicted, for example because its node was drained"),
        ("DeletionByTaintManager", "deleted because its node was lost or tainted"),
        ("PreemptionByScheduler", "preempted by a pod with a higher priority"),
        ("SomethingNew", "disrupted: told so"),
    ],
)
def test_who_evicted_the_pod_is_known_from_its_condition(reason: str, says: str) -> None:
    ending = pod(phase="Running", **condition("DisruptionTarget", "True", reason, "told so"))
    assert says in death(DELETED, ending)
    assert death(DELETED, pod(phase="Running")) == death(DELETED)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (
            condition("PodScheduled", "False", "Unschedulable", "0/2 nodes: 2 Insufficient memory"),
            "No node can take the pod: 0/2 nodes: 2 Insufficient memory.",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "image": "example.org/none:1",
                        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such"}},
                    }
                ]
            },
            "The image example.org/none:1 cannot be used (ImagePullBackOff): no such.",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerError"}}}]},
            "The container cannot start (CreateContainerError): CreateContainerError.",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (condition("PodScheduled", "True", "", ""), ""),
        ({}, ""),
    ],
)
def test_a_pod_that_does_not_start_says_why(status: dict[str, Any], says: str) -> None:
    assert pod(phase="Pending", **status).waits == says
    assert pod(phase="Running", **status).waits == ""


def test_a_disk_that_was_full_evicts_and_a_long_message_is_cut() -> None:
    evicted = pod(phase="Failed", reason="Evicted", message="The disk is full. " * 40)
    assert evicted.ended.startswith("The pod was evicted: The disk is full.")
    assert len(evicted.ended) == LONGEST
    assert evicted
    assert not pod(phase="Running")
    assert pod(phase="Failed", reason="Evicted").ended.endswith("its node gave no message.")


@pytest.mark.parametrize("answer", ["[]", "{}", '{"items": 3}', "", "no JSON"])
def test_another_answer_is_no_list_of_pods(answer: str) -> None:
    with pytest.raises(ValueError, match=r"list of pods|Expecting value"):
        executor_pods(answer)


def test_pods_that_are_not_executors_do_not_count() -> None:
    others = {"items": [{"metadata": {"name": "web"}}, {"metadata": None, "status": None}]}
    assert executor_pods(json.dumps(others)) == ([], "")


# --- a watch ------------------------------------------------------------------------------


def event(kind: str, number: int, version: int, **metadata: Any) -> str:
    labels = {"spark-exec-id": str(number)}
    about = {"labels": labels, "name": "x", "resourceVersion": str(version), **metadata}
    status = {"containerStatuses": [{"state": {"terminated": {"exitCode": 143}}}]}
    return json.dumps({"type": kind, "object": {"metadata": about, "status": status}})


def test_a_watch_tells_what_exists_and_where_to_go_on() -> None:
    text = "\n".join([event("ADDED", 1, 42), event("MODIFIED", 2, 43), event("DELETED", 1, 45)])
    changes, version = pod_changes(text)
    assert [(exists, pod.executor) for exists, pod in changes] == [
        *((True, "1"), (True, "2"), (False, "1")),
    ]
    assert version == "45"
    assert pod_changes("") == ([], "")
    other = {"type": "ADDED", "object": {"metadata": {"name": "web", "resourceVersion": "46"}}}
    assert pod_changes(json.dumps(other)) == ([], "46")


def test_how_a_deleted_pod_ends_is_not_its_reason() -> None:
    ((_, ended),), _ = pod_changes(event("MODIFIED", 1, 42))
    assert "code 143" in ended.ended
    deleted = event("MODIFIED", 1, 42, deletionTimestamp="2026-11-30T10:00:00Z")
    ((_, ended),), _ = pod_changes(deleted)
    assert ended.ended == ""


def test_a_watch_that_has_lost_changes_is_an_error() -> None:
    lost = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    with pytest.raises(ValueError, match="too old resource version"):
        pod_changes(json.dumps(lost))


# --- a driver's pod -----------------------------------------------------------------------

RUNS = {"running": {"startedAt": "2026-11-30T10:00:00Z"}}
INITIALIZES = {"waiting": {"reason": "PodInitializing"}}
FETCHED = {"terminated": {"exitCode": 0, "reason": "Completed"}}
LOST = condition("DisruptionTarget", "True", "DeletionByTaintManager", "node is unreachable")


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def driver(
    main: dict[str, Any] | None = None,
    fetch: dict[str, Any] | None = None,
    *,
    containers: tuple[str, ...] = ("driver",),
    deleted: bool = False,
    **status: Any,
) -> DriverPod:
    """Return a driver's pod by the states of its main and its init container, if any."""
    states = {"containerStatuses": ("driver", main), "initContainerStatuses": ("fetch", fetch)}
    for key, (name, state) in states.items():
        if state is not None:
            status[key] = [{"name": name, "image": "example.org/headgate:1", "state": state}]
    metadata: dict[str, Any] = {"name": "hg-flights-12", "uid": "7d3c"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    spec: dict[str, Any] = {"containers": [{"name": name} for name in containers]}
    if "phase" in status:
        spec["nodeName"] = "node-1"
    return driver_pod({"metadata": metadata, "spec": spec, "status": status})


def test_a_drivers_pod_is_known_by_its_uid_and_node() -> None:
    running = driver(RUNS, FETCHED, phase="Running")
    began = datetime(2026, 11, 30, 10, tzinfo=UTC)
    assert running == DriverPod("hg-flights-12", "7d3c", "node-1", "Running", started_at=began)
    assert driver({"running": {"startedAt": "soon"}}).started_at is None
    assert driver(INITIALIZES).started_at is None
    deleted = driver(RUNS, FETCHED, phase="Running", deleted=True)
    assert (deleted.deleting, deleted.terminated, deleted.ended) == (True, False, "")
    assert driver_pod({}) == DriverPod("")
    assert driver_pod({"metadata": None, "spec": None, "status": None}) == DriverPod("")


@pytest.mark.parametrize(
    ("pod", "waits"),
    [
        (
            driver(
                INITIALIZES,
                {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
                phase="Pending",
            ),
            "The image example.org/headgate:1 cannot be used (ErrImagePull): no such image.",
        ),
        (
            driver(
                phase="Pending",
                **condition("PodScheduled", "False", "Unschedulable", "0/2 nodes: 2 cpu"),
            ),
            "No node can take the pod: 0/2 nodes: 2 cpu.",
        ),
        (driver(INITIALIZES, RUNS, phase="Pending"), ""),
        (driver(RUNS, FETCHED, phase="Running"), ""),
    ],
)
def test_a_driver_that_does_not_start_says_why(pod: DriverPod, waits: str) -> None:
    assert (pod.waits, pod.terminated, pod.exit_code) == (waits, False, None)


@pytest.mark.parametrize(
    ("pod", "code", "says"),
    [
        (driver(ended(0, "Completed"), FETCHED, phase="Succeeded"), 0, ""),
        (
            driver(ended(3), FETCHED, phase="Failed"),
            3,
            "The driver's container exited with code 3.",
        ),
        (
            driver(ended(137), FETCHED, phase="Failed"),
            137,
            "The driver's container exited with code 137: killed from outside with SIGKILL.",
        ),
        # An executor's own codes mean nothing here.
        (driver(ended(52), phase="Failed"), 52, "The driver's container exited with code 52."),
        (
            driver(ended(137, "OOMKilled"), FETCHED, phase="Failed"),
            137,
            "The driver's pod used more than its memory limit (OOMKilled); raise "
            "spark.driver.memoryOverhead, or the application's memory.",
        ),
        (
            driver(ended(143), phase="Failed", reason="Evicted", message="The disk is full."),
            143,
            "The pod was evicted: The disk is full.",
        ),
        (
            driver(
                ended(143),
                phase="Failed",
                deleted=True,
                **condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "by drain"),
            ),
            143,
            "The pod was evicted, for example because its node was drained: by drain.",
        ),
        (driver(ended(143), phase="Failed", deleted=True), 143, ""),
        # The node had lost sight of the container; the code is the kubelet's invention.
        (
            driver(ended(137, "ContainerStatusUnknown"), phase="Failed"),
            None,
            "The driver's container ended, and its node did not see how (ContainerStatusUnknown).",
        ),
    ],
)
def test_a_driver_has_ended_when_its_node_says_so(
    pod: DriverPod, code: int | None, says: str
) -> None:
    assert (pod.terminated, pod.exit_code, pod.ended) == (True, code, says)
    assert pod.oom == ("OOMKilled" in says)


@pytest.mark.parametrize(
    ("pod", "node_lost"),
    [
        (driver(RUNS, FETCHED, phase="Failed", reason="NodeLost"), True),
        (driver(RUNS, FETCHED, phase="Failed", **LOST), True),
        (driver(RUNS, FETCHED, phase="Failed", deleted=True, **LOST), True),
        (
            driver(
                RUNS,
                phase="Failed",
                **condition("DisruptionTarget", "True", "DeletionByPodGC", "no such node"),
            ),
            True,
        ),
        (driver(RUNS, phase="Running", **condition("Ready", "Unknown", "", "")), True),
        (driver(RUNS, phase="Running", **condition("Ready", "False", "", "")), False),
        (driver(RUNS, phase="Unknown"), False),
        (driver(phase="Failed", reason="Evicted"), False),
        (driver(RUNS, containers=("driver", "proxy"), phase="Failed"), False),
        (driver(ended(0), containers=("driver", "proxy"), phase="Failed"), False),
        (driver(ended(0), containers=(), phase="Failed"), False),
        (driver({"waiting": {}}, lastState=ended(1), phase="Failed"), False),
    ],
)
def test_a_phase_or_a_lost_node_is_no_end(pod: DriverPod, node_lost: bool) -> None:
    assert (pod.terminated, pod.node_lost) == (False, node_lost)


@pytest.mark.parametrize(
    ("longest_batch_s", "seconds"), [(0, 120), (70, 120), (100.4, 150), (3600, 600)]
)
def test_a_deleted_pod_has_time_for_its_longest_batch(longest_batch_s: float, seconds: int) -> None:
    assert grace_s(longest_batch_s) == seconds


def test_an_end_that_a_node_only_concludes_is_marked() -> None:
    assert driver(ended(137, "ContainerStatusUnknown"), phase="Failed").guessed
    assert not driver(ended(137), phase="Failed").guessed


def test_a_pod_whose_preparation_failed_never_ran() -> None:
    failed = driver(INITIALIZES, ended(1, message="404: no such code"), phase="Failed")
    assert (failed.terminated, failed.exit_code, failed.oom) == (True, None, False)
    assert failed.ended == "The pod could not be prepared (exit code 1): 404: no such code."
    assert failed.message == "404: no such code."
    killed = driver(INITIALIZES, ended(137, "OOMKilled"), phase="Failed")
    assert (killed.terminated, killed.oom, "OOMKilled" in killed.ended) == (True, True, True)
    unseen = driver(INITIALIZES, ended(2), phase="Failed")
    assert unseen.ended == "The pod could not be prepared (exit code 2)."
    deleted = driver(INITIALIZES, ended(137), phase="Failed", deleted=True)
    assert (deleted.terminated, deleted.ended) == (True, "")


@pytest.mark.parametrize(
    "pod",
    [
        driver(INITIALIZES, ended(1), phase="Pending"),  # its node has not given up
        driver(INITIALIZES, FETCHED, phase="Failed", **LOST),
        driver(INITIALIZES, RUNS, phase="Failed", **LOST),
        driver({"waiting": {"reason": "CreateContainerError"}}, ended(1), phase="Failed"),
        driver(None, ended(1), phase="Failed"),
        driver(RUNS, ended(1), phase="Failed"),
        driver(INITIALIZES, ended(1), phase="Failed", containers=("driver", "proxy")),
        driver(INITIALIZES, ended(1), phase="Failed", containers=()),
    ],
)
def test_a_pod_that_might_have_run_is_not_ended_by_its_preparation(pod: DriverPod) -> None:
    assert not pod.terminated


def test_what_the_container_left_as_its_message_is_cut() -> None:
    left = driver(ended(1, message="java.lang.Error: " + "x" * 400), phase="Failed")
    assert left.message.startswith("java.lang.Error: x")
    assert len(left.message) == LONGEST
    assert driver(ended(1), phase="Failed").message == ""


_UNENDED = st.sampled_from([{}, None, RUNS, INITIALIZES, {"waiting": {"reason": "Error"}}])
_STATUSES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["driver", "fetch", "proxy"]), "state": _UNENDED},
        optional={"lastState": st.just(ended(137)), "ready": st.booleans()},
    ),
    max_size=3,
)
_WORDS = st.sampled_from(["True", "False", "Unknown", "DeletionByPodGC", "DeletionByTaintManager"])
_CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Ready", "DisruptionTarget", "PodScheduled"]),
            "status": _WORDS,
            "reason": _WORDS,
        }
    ),
    max_size=3,
)


@given(
    status=st.fixed_dictionaries(
        {},
        optional={
            "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
            "reason": st.sampled_from(["Evicted", "NodeLost", "NodeAffinity", "Shutdown"]),
            "containerStatuses": st.none() | _STATUSES,
            "initContainerStatuses": st.none() | _STATUSES,
            "conditions": st.none() | _CONDITIONS,
        },
    ),
    containers=st.lists(st.sampled_from(["driver", "proxy"]), max_size=2),
    metadata=st.sampled_from([{}, {"deletionTimestamp": "2026-11-30T10:00:00Z"}]),
)
def test_without_a_containers_end_nothing_ends_a_pod(
    status: dict[str, Any], containers: list[str], metadata: dict[str, str]
) -> None:
    spec = {"containers": [{"name": name} for name in containers]}
    pod = driver_pod({"metadata": metadata, "spec": spec, "status": status})
    assert (pod.terminated, pod.exit_code, pod.oom) == (False, None, False)
