"""What Kubernetes and Spark report about executors' pods, in sentences.

Spark itself reports only an exit code, or that "a user or the framework" deleted the pod, and
nothing about a pod that never starts. The cause is in the pod's status: the kubelet's word on the
container, the scheduler's on a pod without a node, and the condition `DisruptionTarget`, with which
whoever evicts a pod gives the reason (Kubernetes: core/v1 types, `PodStatus`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate_ground.tolerant import whole

#: Characters of a reason or message that are shown.
LONGEST = 300
#: Spark's label with an executor's number (spark-exec-id).
EXECUTOR_LABEL = "spark-exec-id"
#: Ours, with the epoch of the driver.
EPOCH_LABEL = "headgate/epoch"
#: A waiting container's reasons that are part of every start.
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})
#: What the reasons of `DisruptionTarget` mean.
_DISRUPTIONS = {
    "EvictionByEvictionAPI": "evicted, for example because its node was drained",
    "DeletionByTaintManager": "deleted because its node was lost or tainted",
    "DeletionByPodGC": "deleted because its node no longer exists",
    "PreemptionByScheduler": "preempted by a pod with a higher priority",
    "TerminationByKubelet": "ended by its node, which was short of resources or shut down",
}


@dataclass(frozen=True, slots=True)
class ExecutorPod:
    """An executor's pod, as the API server described it."""

    executor: str  # its number in Spark
    name: str
    epoch: int = 0  # of its driver
    node: str = ""  # "" while it has none
    waits: str = ""  # why it has not started, "" if it has or is about to
    ended: str = ""  # why it ended or is ending, "" if it is not

    def __bool__(self) -> bool:
        """Return whether anything is to be said about the pod."""
        return bool(self.waits or self.ended)


def executor_pods(listed: str) -> tuple[list[ExecutorPod], str]:
    """Return the executors' pods in a `PodList` in JSON, and from where to watch changes.

    Raises ValueError for anything else.
    """
    answer = json.loads(listed)
    items = answer.get("items") if isinstance(answer, Mapping) else None
    if not isinstance(items, list):
        raise ValueError("the API server's answer is not a list of pods")
    pods = [pod for item in items if (pod := _pod(item)).executor]
    return pods, str((answer.get("metadata") or {}).get("resourceVersion", ""))


def pod_changes(watched: str) -> tuple[list[tuple[bool, ExecutorPod]], str]:
    """Return the changes in a watch's answer: whether a pod still exists, and its newest status.

    The second value is the version of the last one, "" without any. Raises ValueError if the API
    server no longer has the changes since the requested version, or for anything else.
    """
    changes, version = [], ""
    for line in watched.splitlines():
        event = json.loads(line)
        item = event.get("object") or {}
        if event.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
            raise ValueError(f"the watch of pods ended: {item.get('message', 'no reason given')}")
        version = str((item.get("metadata") or {}).get("resourceVersion", ""))
        if (pod := _pod(item)).executor:
            changes.append((event["type"] != "DELETED", pod))
    return changes, version


def _pod(item: Mapping[str, Any]) -> ExecutorPod:
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    labels = metadata.get("labels") or {}
    return ExecutorPod(
        executor=str(labels.get(EXECUTOR_LABEL, "")),
        name=str(metadata.get("name", "")),
        epoch=whole(str(labels.get(EPOCH_LABEL, ""))) or 0,
        node=str((item.get("spec") or {}).get("nodeName") or ""),
        waits=_waits(status),
        ended=_ended(status, deleted=bool(metadata.get("deletionTimestamp"))),
    )


def _waits(status: Mapping[str, Any]) -> str:
    if status.get("phase") != "Pending":
        return ""
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason and reason not in _STARTING:
            image = container.get("image", "")
            if "Image" in reason or "Pull" in reason:
                return _cut(f"The image {image} cannot be used ({reason}): {message or reason}")
            return _cut(f"The container cannot start ({reason}): {message or reason}")
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        message = scheduled.get("message") or scheduled.get("reason") or "no reason given"
        return _cut(f"No node can take the pod: {message}")
    return ""


def _ended(status: Mapping[str, Any], *, deleted: bool) -> str:
    if status.get("reason") == "Evicted":
        return _cut(f"The pod was evicted: {status.get('message') or 'its node gave no message'}")
    containers = status.get("containerStatuses") or ()
    ended = [(one.get("state") or {}).get("terminated") or {} for one in containers]
    if any(one.get("reason") == "OOMKilled" for one in ended):
        return _OUT_OF_MEMORY
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted.get("status") == "True":
        meaning = _DISRUPTIONS.get(disrupted.get("reason", ""))
        return _cut(f"The pod was {meaning or 'disrupted'}: {disrupted.get('message', '')}")
    # How a deleted pod's process ends shows only that it was deleted.
    codes = [str(one["exitCode"]) for one in ended if one.get("exitCode") and not deleted]
    return _exited_with(codes[0]) if codes else ""


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


_OUT_OF_MEMORY = (
    "The pod used more than its memory limit (OOMKilled); raise spark.executor.memoryOverhead, or "
    "spark.executor.memory."
)
#: What an executor's own exit codes mean (Spark: SparkExitCode, ExecutorExitCode).
_MEANINGS = {
    "50": "an exception that nothing caught",
    "51": "an exception, and another one while it was logged",
    "52": "its JVM ran out of memory",
    "53": "it could not make its local folder",
    "56": "it could not reach the driver for its heartbeats",
    "57": "a task did not end when it was asked to",
    "137": "killed from outside with SIGKILL",
    "143": "asked to end with SIGTERM",
}
_EXITED = re.compile(r"exited with exit code (-?\d+)")
_BRIEFLY = re.compile(r"The API gave the following brief reason: (.+)")
_MESSAGE = re.compile(r"The API gave the following message: (.+)")
_TERMINATED = re.compile(r"termination reason: (\w+)")
_DELETED = "was deleted by a user or the framework"


def death(reported: str, pod: ExecutorPod | None = None) -> str:
    """Return why an executor ended; `reported` is Spark's reason, `pod` its pod if it was seen.

    Spark's text is that of ExecutorPodsLifecycleManager, with the statuses of all containers; any
    other text is returned as it is.
    """
    if pod is not None and pod.ended:
        return pod.ended
    if _DELETED in reported:
        return "The pod was deleted by a user, Kubernetes or Spark."
    exited = _EXITED.search(reported)
    if exited is None:
        return reported
    terminated = {found[1] for found in _TERMINATED.finditer(reported)}
    if "OOMKilled" in terminated:
        return _OUT_OF_MEMORY
    brief, message = _BRIEFLY.search(reported), _MESSAGE.search(reported)
    if brief is not None and brief[1].strip() not in ("null", ""):
        detail = message[1].strip() if message is not None else ""
        return _cut(f"The pod ended ({brief[1].strip()}){f': {detail}' if detail else ''}")
    return _exited_with(exited[1])


def _exited_with(code: str) -> str:
    meaning = _MEANINGS.get(code, "")
    return f"The executor exited with code {code}{f': {meaning}' if meaning else ''}."


def _cut(text: str) -> str:
    """Return a text in one line, no longer than `LONGEST`, that ends as a sentence does."""
    line = " ".join(text.split()).rstrip(": ")
    if len(line) > LONGEST:
        return f"{line[: LONGEST - 1]}…"
    return line if line.endswith((".", "!", "?")) else f"{line}."
