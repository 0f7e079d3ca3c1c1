"""The files of a driver's pod: where its container has them, and what the channel carries.

Workers, the web process and the pod import this module. A driver's folder exists twice: in the pod,
where its processes use it as on a host, and in the control plane, where the launcher reads it. The
channel copies the driver's files upwards, and what the launcher wants of the driver downwards.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from queries.domain.protocol import (
    DRIVER_LOG,
    EXIT,
    IDENT,
    LAST_SEQ,
    SPARK_LOG,
    STATUS,
    Assignment,
    WireForm,
)

#: Mounted read-only: what the ConfigMap and the Secret of the pod contain.
INTENT = Path("/headgate/intent")
SECRET = Path("/headgate/secret")
#: An `emptyDir`: the fetched code and jars, and the driver's folder.
WORK = Path("/headgate/work")
FETCHED = WORK / "fetched"
DRIVERS = WORK / "drivers"

#: Keys of the ConfigMap: `Plan`, `Assignment` and the pools.
PLAN = "plan.json"
#: Keys of the Secret: the driver's spec, the channel's token, and secrets of the application, as
#: "file.NAME" and "env.NAME".
SPEC_KEY, TOKEN, FILE_PREFIX, ENV_PREFIX = "spec.json", "token", "file.", "env."
#: Key of the ConfigMap with the certificates that the web process's one is signed with; optional.
AUTHORITIES = "authorities.pem"
#: Key of the ConfigMap with what executors' pods are made from, if there are any.
EXECUTOR = "executor.yaml"
#: Names the UID of the pod, in the environment of its containers (downward API).
POD_UID = "HEADGATE_POD_UID"
#: Header with which the pod proves which one it is, next to `Authorization: Bearer TOKEN`.
UID_HEADER = "X-Headgate-Pod"

#: Files in the control plane's copy of the folder, written by the launcher: `Made`, and the files
#: to serve, by their SHA-256.
MADE, ARCHIVES = "pod.json", "archives.json"
#: Written by the launcher if the driver's Python must be asked to exit.
TERMINATE = "terminate"
#: Touched by the web process at each question for news: whether the pod hears what is wanted of it.
ASKED = "asked"
#: Written by the launcher while Kubernetes rejects the launch for now: the sentence.
REFUSED = "refused"
#: Files that a pod may send whole, of at most 8 MiB, and their folders.
WHOLE = {STATUS: "own", LAST_SEQ: "own", IDENT: "own", EXIT: "own"}
#: Files that a pod sends in parts as they grow, in `own`; and each segment of its spool.
GROWING = (DRIVER_LOG, SPARK_LOG)
MOST_OF_PART = 1024 * 1024  # bytes
MOST_OF_WHOLE = 8 * 1024 * 1024  # bytes
#: A driver empties its log at this size (`queries.runtime.process`).
MOST_OF_GROWING = 64 * 1024 * 1024  # bytes
#: Seconds that the web process holds a question for news before it answers without any. A pod only
#: learns of its host's heartbeat from these answers, and the heartbeat's limit is 15 s.
POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Archive:
    """A file that the init container fetches."""

    sha256: str
    target: str  # below `FETCHED`
    unpack: bool  # a tar file; its members are below `target`

    @property
    def path(self) -> PurePosixPath:
        """Return where the pod has it."""
        return PurePosixPath(FETCHED) / self.target


@dataclass(frozen=True, slots=True)
class Plan(WireForm):
    """What the containers of a pod need before there is a driver."""

    url: str  # of the channel of this driver, without a slash at its end
    epoch: int
    application: str
    archives: tuple[Archive, ...]


@dataclass(frozen=True, slots=True)
class Made(WireForm):
    """What the launcher created, in the control plane's copy of the folder."""

    name: str  # of the ConfigMap, the Secret and the pod
    namespace: str
    launch: str  # random: the objects of this launch are annotated with it
    uid: str = ""  # of the pod; "" until it was created
    node: str = ""  # that took the pod; "" while that is not known
    guessed: bool = False  # its node lost sight of it, and only then called it ended
    ended: str = ""  # why it ended, by the kubelet's word; "" if nothing is to be said


@dataclass(frozen=True, slots=True)
class News(WireForm):
    """What the control plane wants of a pod's driver; the answer to its question."""

    digest: str  # of everything else but the age: the pod repeats it in its next question
    assignment: Assignment | None
    terminate: bool  # its Python must be asked to exit
    superseded: bool  # a later epoch has been started, or its row has ended: it must exit
    heartbeat_age_s: float | None  # of the worker's host, by the database's clock; None: unknown
