"""The objects of a driver's pod, as Kubernetes documents them: ConfigMap, Secret and Pod.

The ConfigMap is the intent: it exists before the pod and owns the pod and the Secret, so that
nothing is orphaned and `kubectl drain` moves the pod. The pod satisfies the Pod Security Standard
`restricted`, and has neither a secret nor a path of the worker's host in its specification. It
mounts the token of an account only if its driver creates executors, which then are pods too.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.kubernetes import (
    DRIVER_ACCOUNT,
    DRIVER_IMAGE,
    DRIVER_POD,
    EXECUTOR_TEMPLATE,
    IMAGE,
    MASTER,
    NAMESPACE,
    OUR_LABELS,
)
from queries.domain.hosts import memory_mb
from queries.domain.pods import LEAST_GRACE_S
from queries.domain.protocol import ASSIGNMENT, POOLS, Assignment, DriverSpec
from queries.launchers.pods.cluster import Object
from queries.launchers.pods.layout import (
    AUTHORITIES,
    ENV_PREFIX,
    EXECUTOR,
    FILE_PREFIX,
    INTENT,
    PLAN,
    POD_UID,
    SECRET,
    SPEC_KEY,
    TOKEN,
    WORK,
    Plan,
)

#: What a ConfigMap and a Secret can contain, in bytes (Kubernetes: `MaxSecretSize`).
MOST_BYTES = 1024 * 1024
KIND = "driver"
#: The container whose end is the driver's.
CONTAINER = "driver"
#: Annotation with the launch that an object belongs to: one with the same name and another launch
#: is not ours. A digest of the specification would not do: settings and releases change between
#: two attempts of one launch.
LAUNCH = f"{OUR_LABELS}launch"
#: Seconds that a pod stays on a node that does not respond. Its successor does not wait for that.
_UNREACHABLE_S = 30
#: Memory besides the heap, for Python and the JVM's own: Spark's factor for Python applications,
#: and its minimum in MiB (Spark: `spark.driver.memoryOverheadFactor`).
_OVERHEAD, _LEAST_OVERHEAD_MB = 0.4, 384
_NAME_LENGTH = 24
_USER = 10001
#: What the Pod Security Standard `restricted` demands.
_POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "fsGroup": _USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

_CONF = "spark.kubernetes."
#: Configuration that only concerns how the pod is made.
_SELECTORS = (f"{_CONF}node.selector.", f"{_CONF}driver.node.selector.")
_LABELS, _ANNOTATIONS = f"{_CONF}driver.label.", f"{_CONF}driver.annotation."


class TooLarge(Exception):
    """The intent does not fit into a ConfigMap or Secret; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Launch:
    """All that the objects are made of."""

    spec: DriverSpec  # with the pod's paths
    assignment: Assignment
    pools_xml: str
    plan: Plan
    token: str
    files: Mapping[str, str]  # secrets by name, for "file:NAME"
    variables: Mapping[str, str]  # … and for "env:NAME"
    authorities: str = ""  # certificates in PEM; "": the image's own
    default_image: str = ""
    identity: str = ""  # of the launch
    lost_nodes: tuple[str, ...] = ()  # where former drivers may still run: better not there


def object_name(spec: DriverSpec) -> str:
    """Return the name of a driver's objects, which no other epoch or installation has."""
    name = re.sub(r"[^a-z0-9]+", "-", spec.application.lower())[:_NAME_LENGTH].strip("-")
    whole = f"{spec.installation}/{spec.application}".encode()
    return f"hg-{name or 'x'}-{hashlib.sha256(whole).hexdigest()[:6]}-{spec.epoch}-driver"


def labels(installation: str) -> dict[str, str]:
    """Return the labels that all of an installation's driver pods have."""
    return {f"{OUR_LABELS}installation": installation, f"{OUR_LABELS}kind": KIND}


def namespace_of(spec: DriverSpec, default: str) -> str:
    """Return the namespace of a driver's objects."""
    return spec.conf.get(NAMESPACE) or default


def image_of(spec: DriverSpec, default: str) -> str:
    """Return the image of a driver's pod; "" if neither the definition nor a setting names one."""
    return spec.conf.get(DRIVER_IMAGE) or spec.conf.get(IMAGE) or default


def executor_conf(spec: DriverSpec, name: str, namespace: str, image: str) -> dict[str, str]:
    """Return the configuration with which a driver in a pod creates its executors; {} if it is one.

    Its own pod owns them, so that they are deleted with it. An admin's own template is kept.
    """
    if not spec.master.startswith(MASTER):
        return {}
    return {
        EXECUTOR_TEMPLATE: str(INTENT / EXECUTOR),
        IMAGE: image,
        **spec.conf,
        DRIVER_POD: name,
        NAMESPACE: namespace,
    }


def config_map(launch: Launch, name: str) -> Object:
    """Return the intent."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "labels": _labels(launch.spec),
            "annotations": {LAUNCH: launch.identity},
        },
        "data": _intent(launch),
    }


def secret(launch: Launch, name: str, owner: Object) -> Object:
    """Return the Secret with the spec, the token and the bound secrets."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": _labels(launch.spec),
            "annotations": {LAUNCH: launch.identity},
            "ownerReferences": [_owned_by(owner)],
        },
        "stringData": _secrets(launch),
    }


def check_sizes(launch: Launch) -> None:
    """Raise `TooLarge` if an object could not be created."""
    _check(_intent(launch), "definition of the application and its queries")
    _check(_secrets(launch), "secrets of the application")


def _intent(launch: Launch) -> dict[str, str]:
    data = {
        PLAN: launch.plan.dumps(),
        ASSIGNMENT: launch.assignment.dumps(),
        POOLS: launch.pools_xml,
    }
    if launch.authorities:
        data[AUTHORITIES] = launch.authorities
    if launch.spec.master.startswith(MASTER):
        data[EXECUTOR] = json.dumps(_executor(launch))
    return data


def _executor(launch: Launch) -> Object:
    """Return what Spark makes executors' pods from: alone, Spark's do not satisfy `restricted`.

    They avoid lost nodes as the driver does, which waits for them when it starts.
    """
    container = {"name": "executor", "securityContext": _CONTAINER_SECURITY}
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _POD_SECURITY,
        "affinity": _elsewhere(launch.lost_nodes),
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def _secrets(launch: Launch) -> dict[str, str]:
    files = {f"{FILE_PREFIX}{name}": value for name, value in launch.files.items()}
    variables = {f"{ENV_PREFIX}{name}": value for name, value in launch.variables.items()}
    return {SPEC_KEY: launch.spec.dumps(), TOKEN: launch.token, **files, **variables}


def pod(launch: Launch, name: str, owner: Object, fetch: str) -> Object:
    """Return the pod; `fetch` is the program of its init container."""
    conf = launch.spec.conf
    spec = _pod_spec(launch, name)
    spec["initContainers"][0]["command"] = ["python3", "-IS", "-c", fetch]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**dict(_after(conf, _LABELS)), **_labels(launch.spec)},
            "annotations": {**dict(_after(conf, _ANNOTATIONS)), LAUNCH: launch.identity},
            "ownerReferences": [_owned_by(owner)],
        },
        "spec": spec,
    }


def _pod_spec(launch: Launch, name: str) -> Object:
    mounts: list[Object] = [
        {"name": "intent", "mountPath": str(INTENT), "readOnly": True},
        {"name": "secret", "mountPath": str(SECRET), "readOnly": True},
        {"name": "work", "mountPath": str(WORK)},
    ]
    uid = {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    common: Object = {
        "image": image_of(launch.spec, launch.default_image),
        "imagePullPolicy": launch.spec.conf.get(f"{_CONF}container.image.pullPolicy")
        or "IfNotPresent",
        "volumeMounts": mounts,
        "securityContext": _CONTAINER_SECURITY,
    }
    grace_s = max(launch.spec.grace_s, LEAST_GRACE_S)
    grace = {"name": "HEADGATE_POD_GRACE_S", "value": str(grace_s)}
    selectors = [pair for prefix in _SELECTORS for pair in _after(launch.spec.conf, prefix)]
    pull_secrets = launch.spec.conf.get(f"{_CONF}container.image.pullSecrets", "")
    return {
        "restartPolicy": "Never",
        **_account(launch.spec),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": _POD_SECURITY,
        "nodeSelector": dict(selectors),
        "affinity": _elsewhere(launch.lost_nodes),
        "imagePullSecrets": [{"name": one.strip()} for one in pull_secrets.split(",") if one],
        "schedulerName": launch.spec.conf.get(f"{_CONF}driver.scheduler.name")
        or "default-scheduler",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _UNREACHABLE_S,
            }
            for key in ("unreachable", "not-ready")
        ],
        "initContainers": [{**common, "name": "fetch", "env": [uid]}],
        "containers": [
            {
                **common,
                "name": CONTAINER,
                "command": ["python3", "-P", "-m", "queries.launchers.pods.agent"],
                "env": [uid, grace, {"name": "PYTHONPATH", "value": launch_path()}],
                "resources": _resources(launch.spec),
            }
        ],
        "volumes": [
            {"name": "intent", "configMap": {"name": name}},
            {"name": "secret", "secret": {"secretName": name, "defaultMode": 0o440}},
            {"name": "work", "emptyDir": {}},
        ],
    }


def _account(spec: DriverSpec) -> Object:
    """Return the account of a driver that creates executors; no other driver has one."""
    if not spec.master.startswith(MASTER):
        return {"automountServiceAccountToken": False}
    return {
        "automountServiceAccountToken": True,
        "serviceAccountName": spec.conf.get(DRIVER_ACCOUNT) or "default",
    }


def launch_path() -> str:
    """Return the PYTHONPATH with which the agent finds our code."""
    return str(WORK / "fetched" / "code")


def _elsewhere(nodes: tuple[str, ...]) -> Object:
    """Return the wish for other nodes; the scheduler learns only later that a node is lost."""
    if not nodes:
        return {}
    names = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(nodes)}
    preference = {"weight": 100, "preference": {"matchExpressions": [names]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}


def _resources(spec: DriverSpec) -> Object:
    """Return what the scheduler reserves and the kubelet enforces."""
    heap = memory_mb(spec.memory)
    named = spec.conf.get("spark.driver.memoryOverhead", "")
    overhead = memory_mb(named) if named else max(_LEAST_OVERHEAD_MB, round(heap * _OVERHEAD))
    memory = f"{heap + overhead}Mi"
    cores = spec.conf.get(f"{_CONF}driver.request.cores") or "100m"
    limits = {"memory": memory}
    if limit := spec.conf.get(f"{_CONF}driver.limit.cores"):
        limits["cpu"] = limit
    return {"requests": {"memory": memory, "cpu": cores}, "limits": limits}


def _labels(spec: DriverSpec) -> dict[str, str]:
    return {
        **labels(spec.installation),
        f"{OUR_LABELS}application": spec.application.rstrip("._-")[:63],
        f"{OUR_LABELS}epoch": str(spec.epoch),
    }


def is_of(item: Object, launch: str, spec: DriverSpec) -> bool:
    """Return whether an object belongs to a launch of this driver."""
    labels = item["metadata"].get("labels") or {}
    labelled = all(labels.get(name) == value for name, value in _labels(spec).items())
    return labelled and launch_of(item) == launch


def launch_of(item: Object) -> str:
    """Return the launch that an object belongs to; "" if it names none."""
    return str((item["metadata"].get("annotations") or {}).get(LAUNCH, ""))


def is_owned_by(item: Object, owner: Object) -> bool:
    """Return whether an object is deleted with this owner, and not with a former one."""
    references = item["metadata"].get("ownerReferences") or ()
    return any(one.get("uid") == owner["metadata"]["uid"] for one in references)


def _after(conf: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in conf.items():
        if name.startswith(prefix):
            yield name.removeprefix(prefix), value


def _owned_by(owner: Object) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def _check(data: Mapping[str, str], what: str) -> None:
    size = sum(len(name) + len(value.encode()) for name, value in data.items())
    if size > MOST_BYTES:
        raise TooLarge(
            f"The {what} has {size / 1e6:.1f} MB, but a pod can be given at most 1 MiB. Use fewer "
            "queries in one application, or a file in its code."
        )
