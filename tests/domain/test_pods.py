"""The end of an executor's pod, or its waiting, is a sentence that says what to change."""

import json
from typing import Any

import pytest

from queries.domain.pods import LONGEST, ExecutorPod, death, executor_pods, pod_changes

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
