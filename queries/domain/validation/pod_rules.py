"""What a driver needs to run as a pod in Kubernetes: its definition, and its storage.

A pod has one image, with one Spark, and a disk that is deleted with it. The host's folders are not
in it (docs/kubernetes.md, docs/decisions/0051-drivers-as-pods.md).
"""

import re
from collections.abc import Iterable

from queries.domain.definitions.allowed_paths import fixed_part
from queries.domain.definitions.kubernetes import DRIVER_ACCOUNT, DRIVER_IMAGE, IMAGE, MASTER
from queries.domain.definitions.locations import NotALocation, as_s3a, local_path
from queries.domain.definitions.spec import ApplicationSpec, DriverPlace
from queries.domain.errors import Problem
from queries.domain.sparks import OURS

_PROCESS = f'choose "{DriverPlace.PROCESS.value}" as the driver'
_LOCAL = "is local, and a driver's pod has its own disk, which is deleted with the pod."
#: Fields that may be local: the worker lists a schedule's folder, and an image may contain the
#: files of a Kafka client.
_MAY_BE_LOCAL = re.compile(r"schedule\.files|(.*\.options|conf\.spark)\.kafka\..+", re.IGNORECASE)


def image(spec: ApplicationSpec, *, default: str) -> str:
    """Return the image of a driver that is a pod, which its executors get; "" for a process.

    `default` is the installation's, "" if there is none.
    """
    if not spec.runs_in_pod:
        return ""
    return spec.conf.get(DRIVER_IMAGE) or spec.conf.get(IMAGE) or default


def application_problems(spec: ApplicationSpec, *, default_image: str) -> list[Problem]:
    """Return what prevents an application's driver from running as a pod; [] if it is a process.

    `default_image` is the installation's image for such pods, "" if there is none.
    """
    if not spec.runs_in_pod:
        return []
    problems = []
    if not spec.master.startswith(("local", MASTER)):
        message = "is not possible for a driver in a pod, whose executors can only be pods too."
        way_out = f"Use local[N] or k8s://https://host:port, or {_PROCESS}."
        problems.append(Problem("master", spec.master[:200], message, way_out))
    if spec.master.startswith(MASTER) and not spec.conf.get(DRIVER_ACCOUNT):
        message = "is missing: the driver's pod needs an account that may create executors."
        way_out = f"Have an admin set it (docs/kubernetes.md), or use local[N], or {_PROCESS}."
        problems.append(Problem(f"conf.{DRIVER_ACCOUNT}", "", message, way_out))
    if spec.spark != OURS:
        message = f"is not in the image of drivers' pods, which contains Spark {OURS}."
        way_out = f"Choose {OURS}, or {_PROCESS}."
        problems.append(Problem("spark", spec.spark, message, way_out))
    if spec.kind == "script":
        message = "is not possible for a driver in a pod yet."
        way_out = f"Define the queries in Headgate, or {_PROCESS}."
        problems.append(Problem("kind", spec.kind, message, way_out))
    if spec.standby != "none":
        message = "is not possible for a driver in a pod yet."
        problems.append(Problem("standby", spec.standby, message, f'Choose "none", or {_PROCESS}.'))
    if not image(spec, default=default_image):
        message = "is missing: the driver's pod cannot be created without an image."
        way_out = f"Have an admin set it or HEADGATE_POD_IMAGE (docs/kubernetes.md), or {_PROCESS}."
        problems.append(Problem(f"conf.{DRIVER_IMAGE}", "", message, way_out))
    return problems


def checkpoint_problems(location: str, application: ApplicationSpec) -> list[Problem]:
    """Return a problem if a canonical checkpoint location would end with the driver's pod."""
    if not application.runs_in_pod or local_path(location) is None:
        return []
    way_out = "Specify a checkpoint on S3 or HDFS, for example s3a://bucket/checkpoints/NAME."
    return [Problem("checkpoint", location[:200], _LOCAL, way_out)]


def place_problems(
    places: Iterable[tuple[str, str]], application: ApplicationSpec
) -> list[Problem]:
    """Return a problem for each local place (field and text) of a definition whose driver is a pod.

    These are the places that the driver reads or writes.
    """
    if not application.runs_in_pod:
        return []
    way_out = f"Use a location on S3 or HDFS, for example s3a://bucket/data, or {_PROCESS}."
    return [
        Problem(field, text[:200], _LOCAL, way_out)
        for field, text in places
        if _is_local(text) and not _MAY_BE_LOCAL.fullmatch(field)
    ]


def _is_local(text: str) -> bool:
    """Return whether a place is local; invalid locations, which are rejected anyway, are not."""
    try:
        return local_path(fixed_part(as_s3a(text))) is not None
    except NotALocation:
        return False
