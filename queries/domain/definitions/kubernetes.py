"""Configuration of the pods of drivers and executors on Kubernetes, and who may set it.

Authors choose how large pods are and how they are labelled. Everything else decides where pods run,
under which account, and what of the namespace they can mount, so only admins may set it: a pod can
mount any secret of its namespace, and a template or a volume can be anything.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from queries.domain.errors import Problem

if TYPE_CHECKING:  # shims import this module, and pydantic would double the time of their start
    from queries.domain.definitions.spec import ApplicationSpec

#: Prefix of such a master.
MASTER = "k8s://"
#: What the Python of an image is called; Spark names it with each task.
PYTHON = "python3"
#: Keys that name the image of all pods, of drivers and of executors.
IMAGE = "spark.kubernetes.container.image"
DRIVER_IMAGE = "spark.kubernetes.driver.container.image"
EXECUTOR_IMAGE = "spark.kubernetes.executor.container.image"
NAMESPACE = "spark.kubernetes.namespace"
#: Keys of Spark's own for drivers that are pods and have executors: the account with which the
#: driver creates them, the pod that owns them, and the file that theirs are made from.
DRIVER_ACCOUNT = "spark.kubernetes.authenticate.driver.serviceAccountName"
DRIVER_POD = "spark.kubernetes.driver.pod.name"
EXECUTOR_TEMPLATE = "spark.kubernetes.executor.podTemplateFile"
#: Labels of ours begin with this, and Spark finds its own pods by labels that begin with "spark-".
OUR_LABELS = "headgate/"

#: What authors may set. Memory is `spark.driver.…` and `spark.executor.…`.
OF_AUTHORS = (
    r"spark\.kubernetes\.(driver|executor)\."
    rf"((request|limit)\.cores|label\.(?!{OUR_LABELS}|spark-).+)"
)
#: What only admins may set (Spark: "Running Spark on Kubernetes", the properties that apply to
#: client mode; and those of a driver's pod, which Headgate creates).
OF_ADMINS = (
    r"spark\.kubernetes\.(namespace|context|allocation\..+"
    r"|container\.image(\.pullPolicy|\.pullSecrets)?"
    r"|authenticate\.(caCertFile|clientKeyFile|clientCertFile|oauthToken|oauthTokenFile"
    r"|(driver|executor)\.serviceAccountName)"
    r"|driver\.(connectionTimeout|requestTimeout|container\.image|scheduler\.name"
    r"|(annotation|node\.selector)\..+)"
    r"|node\.selector\..+"
    r"|executor\.(container\.image|podTemplateFile|podTemplateContainerName"
    r"|(annotation|volumes|node\.selector)\..+|scheduler\.name"
    r"|deleteOnTermination))"
)
_PLACEMENT = re.compile(OF_ADMINS)


def placement_fields(before: "ApplicationSpec | None", after: "ApplicationSpec") -> list[str]:
    """Return the fields with which an application's definition changes where its pods run, sorted.

    The master is one of them: an account's token is sent to it. If it is a Kubernetes cluster, the
    driver's place is another: on a host, it gets the account of that host. Otherwise it is none: in
    a pod, the driver gets only what admins have set, in the definition or for the installation.
    """
    former, new = dict(_placement(before)), dict(_placement(after))
    names = former.keys() | new.keys()
    return sorted(name for name in names if former.get(name) != new.get(name))


def _placement(spec: "ApplicationSpec | None") -> Iterator[tuple[str, str]]:
    if spec is None:
        return
    if spec.master.startswith(MASTER):
        yield "master", spec.master
        if spec.runs_in_pod:
            yield "driver", spec.driver
    for name, value in spec.conf.items():
        if _PLACEMENT.fullmatch(name):
            yield f"conf.{name}", value


def kubernetes_problems(
    master: str, conf: Mapping[str, str], *, default_image: str = ""
) -> list[Problem]:
    """Return what an application lacks whose executors are pods.

    `default_image` is what they have if the configuration names no image; "" if there is none.
    """
    if not master.startswith(MASTER) or default_image or conf.keys() & {IMAGE, EXECUTOR_IMAGE}:
        return []
    message = "is missing: Spark cannot create executors without an image."
    return [Problem(f"conf.{IMAGE}", "", message, "Have an admin set it (docs/kubernetes.md).")]
