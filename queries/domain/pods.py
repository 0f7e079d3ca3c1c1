"""What Kubernetes and Spark report about the pods of executors and drivers, in sentences.

Spark itself reports only an exit code, or that "a user or the framework" deleted the pod, and
nothing about a pod that never starts. The cause is in the pod's status: the kubelet's word on the
container, the scheduler's on a pod without a node, and the condition `DisruptionTarget`, with which
whoever evicts a pod gives the reason (Kubernetes: core/v1 types, `PodStatus`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate_ground.tolerant import whole
from queries.domain.protocol import LEAVE_S

#: Characters of a reason or message that are shown.
LONGEST = 300
#: Spark's label with an executor's number (spark-exec-id).
EXECUTOR_LABEL = "spark-exec-id"
#: Ours, with the epoch of the driver.
EPOCH_LABEL = "headgate/epoch"
#: The container of a driver's pod in which the driver runs.
DRIVER_CONTAINER = "driver"
#: Seconds that a deleted pod has at least and at most, and besides its longest batch.
LEAST_GRACE_S, MOST_GRACE_S = 120, 600
_BESIDE_BATCH_S = LEAVE_S + 20
#: A waiting container's reason until all init containers have ended.
_INITIALIZING = "PodInitializing"
#: A waiting container's reasons that are part of every start.
_STARTING = frozenset({"ContainerCreating", _INITIALIZING})
#: A node's reason for a container that had ended before the node saw how: the code is made up.
_UNSEEN = "ContainerStatusUnknown"
#: What the reasons of `DisruptionTarget` mean.
_DISRUPTIONS = {
    "EvictionByEvictionAPI": "evicted, for example because its node was drained",
    "DeletionByTaintManager": "deleted because its node was lost or tainted",
    "DeletionByPodGC": "deleted because its node no longer exists",
    "PreemptionByScheduler": "preempted by a pod with a higher priority",
    "TerminationByKubelet": "ended by its node, which was short of resources or shut down",
}
#: Those of a node that is lost: its containers may still run.
_NODE_LOST = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})


@dataclass(frozen=True, slots=True)
class _Role:
    """What the end of a pod's container means, by what runs in it."""

    name: str
    out_of_memory: str
    exits: Mapping[str, str]  # exit code -> its meaning


_KILLED = {"137": "killed from outside with SIGKILL", "143": "asked to end with SIGTERM"}
_EXECUTOR = _Role(
    "executor",
    "The pod used more than its memory limit (OOMKilled); raise spark.executor.memoryOverhead, or "
    "spark.executor.memory.",
    # Executors' own exit codes (Spark: SparkExitCode, ExecutorExitCode).
    {
        "50": "an exception that nothing caught",
        "51": "an exception, and another one while it was logged",
        "52": "its JVM ran out of memory",
        "53": "it could not make its local folder",
        "56": "it could not reach the driver for its heartbeats",
        "57": "a task did not end when it was asked to",
        **_KILLED,
    },
)
#: A driver's own exit codes are the shim's to report: the container's is that of the shim.
_DRIVER = _Role(
    "driver's container",
    "The driver's pod used more than its memory limit (OOMKilled); raise "
    "spark.driver.memoryOverhead, or the application's memory.",
    _KILLED,
)


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
        ended=_ended(status, _EXECUTOR, deleted=bool(metadata.get("deletionTimestamp"))),
    )


def grace_s(longest_batch_s: float) -> int:
    """Return how long a deleted pod may go on, in seconds: for its longest batch, and to leave.

    The limit is a node's: a drain waits for it.
    """
    return round(min(MOST_GRACE_S, max(LEAST_GRACE_S, longest_batch_s + _BESIDE_BATCH_S)))


@dataclass(frozen=True, slots=True)
class DriverPod:
    """A driver's pod, as the API server described it."""

    name: str
    uid: str = ""
    node: str = ""  # "" while it has none
    phase: str = ""  # Kubernetes' own; it alone is no proof of an end
    waits: str = ""  # why it has not started, "" if it has or is about to
    ended: str = ""  # why it ended or is ending, "" if it is not
    #: Whether its node reported the end of all its containers, or that they never started.
    terminated: bool = False
    exit_code: int | None = None  # of the driver's container; None while it runs, or if unknown
    oom: bool = False  # a container used more than its memory limit
    message: str = ""  # what the container that failed left as its message, cut
    deleting: bool = False
    started_at: datetime | None = None  # when its driver's container began to run; None: not yet
    guessed: bool = False  # its node lost sight of it, and only then called it ended
    node_lost: bool = False  # unless `terminated`, the containers may still run there


def driver_pod(item: Mapping[str, Any]) -> DriverPod:
    """Return what a V1Pod in JSON says about a driver's pod; missing parts are empty."""
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    spec = item.get("spec") or {}
    deleting = bool(metadata.get("deletionTimestamp"))
    failed = _failed_to_prepare(status)
    main = next(
        (end for name, end in _ends(status, "containerStatuses") if name == DRIVER_CONTAINER), {}
    )
    code = main.get("exitCode") if main.get("reason") != _UNSEEN else None
    ended = _ended(status, _DRIVER, deleted=deleting)
    if failed and not ended and not deleting:
        ended = _cut(
            f"The pod could not be prepared (exit code {failed.get('exitCode')}): "
            f"{failed.get('message') or ''}"
        )
    return DriverPod(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        node=str(spec.get("nodeName") or ""),
        phase=str(status.get("phase", "")),
        waits=_waits(status),
        ended=ended,
        terminated=_all_ended(spec, status) or (bool(failed) and _never_ran(spec, status)),
        exit_code=code if isinstance(code, int) else None,
        oom=_is_out_of_memory(status),
        message=_cut(str((failed or main).get("message") or "")),
        deleting=deleting,
        started_at=_started_at(status),
        guessed=any(end.get("reason") == _UNSEEN for _, end in _ends(status, "containerStatuses")),
        node_lost=_is_node_lost(status),
    )


def _started_at(status: Mapping[str, Any]) -> datetime | None:
    """Return when the driver's container began to run, by its node's clock; None: not yet."""
    for name, state in _states(status, "containerStatuses"):
        about = state.get("running") or state.get("terminated") or {}
        if name == DRIVER_CONTAINER and about.get("startedAt"):
            with suppress(ValueError):
                return datetime.fromisoformat(str(about["startedAt"]))
    return None


def _states(status: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the current state of each container in a list of statuses."""
    for container in status.get(key) or ():
        yield str(container.get("name", "")), container.get("state") or {}


def _ends(status: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the end of each container that has ended."""
    for name, state in _states(status, key):
        if end := state.get("terminated"):
            yield name, end


def _failed_to_prepare(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the end of the init container that failed, {} if none did."""
    ends = (end for _, end in _ends(status, "initContainerStatuses"))
    return next((end for end in ends if end.get("exitCode")), {})


def _all_ended(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether each of a pod's containers has ended, by its node's report."""
    names = _containers(spec)
    return bool(names) and names <= {name for name, _ in _ends(status, "containerStatuses")}


def _never_ran(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether a pod has failed while its node waited to start each of its containers."""
    waiting = {
        name
        for name, state in _states(status, "containerStatuses")
        if (state.get("waiting") or {}).get("reason") == _INITIALIZING
    }
    running = any(state.get("running") for _, state in _states(status, "initContainerStatuses"))
    names = _containers(spec)
    return status.get("phase") == "Failed" and bool(names) and names <= waiting and not running


def _containers(spec: Mapping[str, Any]) -> set[str]:
    return {str(container.get("name", "")) for container in spec.get("containers") or ()}


def _is_node_lost(status: Mapping[str, Any]) -> bool:
    disrupted = _condition(status, "DisruptionTarget")
    return (
        (disrupted.get("status") == "True" and disrupted.get("reason") in _NODE_LOST)
        or status.get("reason") == "NodeLost"
        or _condition(status, "Ready").get("status") == "Unknown"
    )


def _waits(status: Mapping[str, Any]) -> str:
    if status.get("phase") != "Pending":
        return ""
    keys = ("initContainerStatuses", "containerStatuses")
    for container in (one for key in keys for one in status.get(key) or ()):
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


def _ended(status: Mapping[str, Any], role: _Role, *, deleted: bool) -> str:
    if status.get("reason") == "Evicted":
        return _cut(f"The pod was evicted: {status.get('message') or 'its node gave no message'}")
    if _is_out_of_memory(status):
        return role.out_of_memory
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted.get("status") == "True":
        meaning = _DISRUPTIONS.get(disrupted.get("reason", ""))
        return _cut(f"The pod was {meaning or 'disrupted'}: {disrupted.get('message', '')}")
    # How a deleted pod's process ends shows only that it was deleted.
    ends = [end for _, end in _ends(status, "containerStatuses") if not deleted]
    failed = next((end for end in ends if end.get("exitCode")), None)
    if failed is None:
        return ""
    if failed.get("reason") == _UNSEEN:
        return f"The {role.name} ended, and its node did not see how ({_UNSEEN})."
    return _exited_with(str(failed["exitCode"]), role)


def _is_out_of_memory(status: Mapping[str, Any]) -> bool:
    keys = ("initContainerStatuses", "containerStatuses")
    return any(end.get("reason") == "OOMKilled" for key in keys for _, end in _ends(status, key))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


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
        return _EXECUTOR.out_of_memory
    brief, message = _BRIEFLY.search(reported), _MESSAGE.search(reported)
    if brief is not None and brief[1].strip() not in ("null", ""):
        detail = message[1].strip() if message is not None else ""
        return _cut(f"The pod ended ({brief[1].strip()}){f': {detail}' if detail else ''}")
    return _exited_with(exited[1], _EXECUTOR)


def _exited_with(code: str, role: _Role) -> str:
    meaning = role.exits.get(code, "")
    return f"The {role.name} exited with code {code}{f': {meaning}' if meaning else ''}."


def _cut(text: str) -> str:
    """Return a text in one line, no longer than `LONGEST`, that ends as a sentence does."""
    line = " ".join(text.split()).rstrip(": ")
    if not line:
        return ""
    if len(line) > LONGEST:
        return f"{line[: LONGEST - 1]}…"
    return line if line.endswith((".", "!", "?")) else f"{line}."
