"""The files that the control plane, shims and drivers exchange: forms, names, version.

Both sides import this module, but nothing from each other. Every file is replaced atomically
(write, fsync, rename), so a reader sees either the old form or the new one, never a mixture. The
files are authoritative, and Redis is only a hint (`docs/architecture.md`).

A driver's directory contains two folders. A driver reads `control`; an isolated driver cannot write
to it. A driver writes the files in `own`, none of which decides which process is signalled.

===========================  ==========  ===============================================
control/spec.json            launcher    `DriverSpec`, fsynced before the spawn
control/assignment.json      launcher    `Assignment`, never replaced by a lower generation
control/fairscheduler.xml    launcher    pools of the application
control/probe.json           launcher    for a probe driver, instead of an assignment
control/secrets/             launcher    for an isolated driver: its secrets
control/used                 worker      of a storage JVM: empty; its time is that of the last use
control/host_seen            worker      empty; its time is that of the host's last heartbeat
control/kill_reason          worker      the `Reason` why it kills the driver, before it does
control/shim.lock            shim        held (flock) for the shim's life
control/shim.log             shim        its output, usually empty
control/ident.json           shim        `Ident`
control/exit.json            shim        `ExitReport`
own/driver.log               driver      stdout and stderr of Python and JVM, append
own/spark.log                driver      log4j2's rolling file
own/status.json              driver      `DriverStatus`
own/checkpoint-log-ID.json   driver      `domain.checkpoints.logs.LogReport`
own/result.json              driver      for a probe driver: its findings so far
own/spool/                   driver      the outbox's events (listeners.spark)
own/driver.lock              driver      held by Python and JVM until both are gone
own/storage.sock             driver      of a storage JVM: where it listens
own/last_seq                 driver      the outbox's last number, after a clean exit
own/tmp/                     driver      spark.local.dir and java.io.tmpdir, removed by the shim
===========================  ==========  ===============================================

The application's folder above it contains `control/current.json` (`Current`). A probe driver's
directory is in the application's `probes` folder, which has no `current.json`: several may run at
the same time.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit

from queries.domain.catalogs import CatalogSpec

PROTOCOL = 1


class WarningCode(StrEnum):
    """A run's warnings that decisions look for; the stored warning begins with the code."""

    NOT_FENCED = "not fenced: "  # a second driver is not kept out of the run's checkpoint
    BATCHES_UNKNOWN = "Missing batches are unknown, because "

    def text(self, why: str) -> str:
        """Return the warning with its reason, as it is stored and shown."""
        return f"{self.value}{why}"

    def find_in(self, warnings: Any) -> str:
        """Return the warning with this code; "" if there is none, or the column is not a list."""
        texts = map(str, warnings) if isinstance(warnings, list) else ()
        return next((text for text in texts if text.startswith(self.value)), "")


CONTROL = "control"
OWN = "own"

SPEC = "spec.json"
ASSIGNMENT = "assignment.json"
POOLS = "fairscheduler.xml"
SECRETS = "secrets"
HOST_SEEN = "host_seen"
KILL_REASON = "kill_reason"
USED = "used"
SHIM_LOCK = "shim.lock"
SHIM_LOG = "shim.log"
IDENT = "ident.json"
STATUS = "status.json"
EXIT = "exit.json"
CURRENT = "current.json"
DRIVER_LOG = "driver.log"
SPARK_LOG = "spark.log"
STORAGE_SOCKET = "storage.sock"
TMP = "tmp"
DRIVER_LOCK = "driver.lock"
LAST_SEQ = "last_seq"

#: Seconds that a driver has to exit when asked. It is then terminated, and killed after the same
#: time again.
LEAVE_S = 30


#: Exit codes of a driver's Python after something ended its Spark.
JVM_DIED = 71
SPARK_STOPPED = 74  # by users' code, or by a signal to the JVM
SCRIPT_FAILED = 75  # `Status.error` says why
#: Exit codes of a driver's JVM that halts itself (`queries/jvm/Fence.java`).
EXIT_CHECKPOINT_LOST = 76  # a later start owns a checkpoint
CUT_OFF = 77  # neither the checkpoint's store nor the control plane responded


class Want(StrEnum):
    """What an assignment requests of a run."""

    RUN = "RUN"
    DRAIN = "DRAIN"  # stop after the batch in flight has committed
    STOP = "STOP"  # stop immediately


class RunState(StrEnum):
    """The state of a run, as its driver sees it."""

    ABSENT = "ABSENT"  # assigned, but not yet known to the driver (which never writes this)
    STARTING = "STARTING"  # being built, or started without a commit
    RUNNING = "RUNNING"  # first commit or first idle event seen
    STOPPING = "STOPPING"
    ENDED = "ENDED"  # clean end: stopped as requested, or finished by itself
    FAILED = "FAILED"  # `error` says why; includes errors inside start()
    REFUSED = "REFUSED"  # lock held, fenced, or another installation's checkpoint: see `error`


class ScriptState(StrEnum):
    """The state of a user's script, as its driver sees it."""

    RUNNING = "RUNNING"
    RETURNED = "RETURNED"  # with exit code 0, while queries that it started are still running
    STOPPING = "STOPPING"
    COMPLETED = "COMPLETED"  # with exit code 0, and nothing is running any more
    FAILED = "FAILED"  # `Status.error` says why


class Hangs(StrEnum):
    """The part of a run that does not end although it should: its checkpoint stays locked."""

    NOTHING = ""
    START = "start"  # still being built: the user's function, or start(), has not returned
    STOP = "stop"  # Spark's thread of the query, or a foreachBatch call, is still running


@dataclass(frozen=True, slots=True)
class WireForm:
    """The content of a file, as JSON."""

    def dumps(self, mask: Callable[[Any], Any] | None = None) -> str:
        """Return this form as JSON, passed through `mask` if given."""
        fields = asdict(self, dict_factory=_without_new)
        return _text(mask(fields) if mask else fields)

    @classmethod
    def loads(cls, text: str) -> Self:
        """Return the form in `text`; raise ValueError or TypeError if it is not valid."""
        form: Self = read(cls, _object(text))
        return form


@dataclass(frozen=True, slots=True)
class KnownQuery:
    """A query that an earlier driver found in the script."""

    query: int  # primary key
    identity: str  # `queries.domain.scripts`
    asked: str  # the checkpoint that the script specifies, "" for none
    location: str  # the checkpoint that it continues from
    gone: bool = False  # an author said that the script no longer starts it


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """A user's program that a driver runs instead of defined queries."""

    file: str  # "" for a module; in the copies of the code, like the files below
    module: str
    arguments: tuple[str, ...]
    folder: str  # its working directory; kept from one driver to the next
    checkpoints: str  # parent location for checkpoints of queries that specify none
    py_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    known: tuple[KnownQuery, ...] = ()
    accepted: tuple[str, ...] = ()  # identities that an author confirmed as new queries


@dataclass(frozen=True, slots=True)
class DriverSpec(WireForm):
    """Everything a driver is started with."""

    driver: int  # primary key
    epoch: int
    application: str
    installation: str
    host: str
    master: str
    memory: str
    conf: dict[str, str]
    env: dict[str, str]  # references ("env:NAME", "file:NAME") unresolved
    code_roots: tuple[str, ...]  # content-addressed copies, in order
    code_sha256: str  # "" if there are none
    scheduler_mode: str
    listeners: tuple[str, ...]
    redis_url: str
    stream: str  # name of the installation's event stream
    revocation: str = ""  # Redis key in which its end is requested; "" for a probe driver
    event_key: str = ""  # hexadecimal, seals its events (`wire`); "" for a probe driver
    event_settings: dict[str, Any] = field(default_factory=dict)  # listeners.spark.outbox
    ui_port: int = 0  # of its Spark UI; 0 for any free port
    ui_key: str = ""  # hexadecimal key that must sign requests to its Spark UI; "" for no check
    packages: str = ""  # package folder, imported after everything else; "" for none
    spark: str = ""  # folder of another version of PySpark, imported first; "" for ours
    jars: tuple[str, ...] = ()
    secrets_dir: str = ""
    env_allowlist: tuple[str, ...] = ()  # names that "env:NAME" may resolve
    data_roots: tuple[str, ...] = ()  # where data may be
    own_folders: tuple[str, ...] = ()  # of the control plane: data may not be there
    data_umask: int = 0o022  # of the driver, because others may have to read its files
    checkpoints: tuple[str, ...] = ()  # locations of the application's checkpoints known at launch
    folders: tuple[str, ...] = ()  # where further checkpoints of the application will be
    walls: str = ""  # `domain.hosts.Mode`, set by the launcher; "" for none
    stop_timeout_s: float = LEAVE_S  # for spark.stop() and the whole exit
    start_deadline_s: float | None = None  # for a start to advance; None: not checked
    start_max_s: float | None = None  # for a whole start, to Started; of a probe, to Spark
    script: ScriptJob | None = None  # the script to run; None: runs the assignment
    storage_idle_s: int = 0  # a storage JVM, which ends when unused for that long; 0: none
    fence_watch_s: float = 2.0  # between looks for later starts on checkpoints that are not local
    without_classes: str = ""  # why `jars` lacks our own classes, "" if it has them
    probe: bool = False  # runs `queries.runtime.probes.main` on its probe.json; no epoch
    standby: bool = False  # runs nothing until current.json contains its epoch
    catalogs: tuple[CatalogSpec, ...] = ()  # declared by admins, that the application uses
    pod: bool = False  # its processes run in a pod, not on the host of its worker
    grace_s: int = 0  # of its pod: from the request to end until it is killed, if it is deleted
    ended_hosts: tuple[str, ...] = ()  # former owners of checkpoints, whose end was seen
    protocol: int = PROTOCOL

    def sees(self, location: str) -> bool:
        """Return whether an isolated driver can see a checkpoint; True without isolation.

        If it cannot, the files that it writes there would be lost when it ends.
        """
        if not self.walls or location in self.checkpoints:
            return True
        path = urlsplit(location)
        return path.scheme not in ("", "file") or any(
            unquote(path.path).startswith(f"{folder}/") for folder in self.folders
        )


@dataclass(frozen=True, slots=True)
class AssignmentEntry:
    """One run for a driver to host; it stays until its end is acknowledged."""

    query: int  # primary keys
    name: str  # the query's name, shown by Spark
    run: int
    epoch: int  # of the run
    spec: dict[str, Any]  # QuerySpec's JSON form
    checkpoint: str
    pool: str
    want: Want
    deadline: str | None = None  # ISO 8601 UTC: after it a DRAIN becomes a STOP
    takeover: bool = False  # an author confirmed taking over another installation's checkpoint
    accepts_loss: bool = False  # an operator accepted a gap in its sources: skip it
    #: Known IDs of the topics that the checkpoint has offsets for, by topic name.
    topic_ids: dict[str, list[str]] = field(default_factory=dict)
    refused: str = ""  # why it may not start: it uses something that no admin has allowed
    found: int = 0  # its query in the script (`FoundQuery.number`); 0: none
    dump: str = ""  # ISO 8601 UTC: when a thread dump was last requested

    @property
    def called(self) -> str:
        """Return the run's name in the driver's log: the number that pages show."""
        return f"run {self.run} of {self.name}"


@dataclass(frozen=True, slots=True)
class Assignment(WireForm):
    """Everything that a driver should do now."""

    generation: int
    epoch: int  # of the driver: a driver ignores assignments with other epochs
    queries: tuple[AssignmentEntry, ...] = ()
    end: bool = False  # exit when nothing is running any more
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed or was refused, as far as the driver knows."""

    error_class: str  # Spark's condition, "" if the throwable has none
    type_name: str  # of the innermost cause: "java.lang.ArithmeticException", "ValueError"
    root_cause: str  # message of the innermost cause, one paragraph
    message: str  # the full text, at most 32 KiB
    refused: str = ""  # REFUSED only: "held" | "own" (by this driver) | "fenced" | "foreign"
    holder_pid: int | None = None
    unknown_batch: bool = True
    owner_epoch: int | None = None  # "fenced" only: the epoch of the checkpoint's owner


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of one run."""

    run: int
    query: int
    state: RunState
    spark_run_id: str | None = None
    spark_query_id: str | None = None
    asked_for: Want = Want.RUN
    waits_until: str | None = None  # a former owner of its checkpoint elsewhere has halted then
    advanced_at: str | None = None  # when its start last advanced; see `supervision.progress`
    started_at: str | None = None  # ISO 8601 UTC, as are all times here
    first_commit_at: str | None = None
    last_commit_at: str | None = None  # when the driver saw the commit of `last_batch`
    first_idle_at: str | None = None
    ended_at: str | None = None
    last_batch: int | None = None  # the last batch committed by this run
    failed_batch: int | None = None  # the batch in flight when it failed
    failed_offsets: dict[str, Any] = field(default_factory=dict)  # {"start": …, "end": …} a source
    last_progress: dict[str, Any] | None = None
    topic_ids: dict[str, str] = field(default_factory=dict)  # Kafka's, as seen by the driver
    warnings: tuple[str, ...] = ()  # some have a `WarningCode`
    error: RunError | None = None
    hangs: Hangs = Hangs.NOTHING  # including for an ended run, whose remaining part holds the lock


@dataclass(frozen=True, slots=True)
class FoundQuery:
    """A query that a script has started; its status is listed among the runs under `-number`."""

    number: int  # from 1, in this driver
    identity: str  # `queries.domain.scripts`
    name: str  # its queryName, "" for none
    asked: str  # the checkpoint that the script specifies, "" for none
    location: str  # the checkpoint that it uses
    temporary: str = ""  # why its checkpoint is not used for recovery, "" if it is
    trigger: dict[str, Any] = field(default_factory=dict)  # in the form of a definition
    started: bool = False  # Spark has accepted it


@dataclass(frozen=True, slots=True)
class ScriptQuestion:
    """An unknown query that the script wants to start while known ones are missing.

    Spark has not started it. An author must decide whether it is one of the missing queries.
    """

    identity: str  # `queries.domain.scripts`
    name: str  # its queryName, "" for none
    asked: str  # the checkpoint that the script specifies, "" for none
    missing: tuple[int, ...]  # primary keys of known queries that the script has not started


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """A driver's report on the script that it runs."""

    state: ScriptState
    notes: tuple[str, ...] = ()  # settings it requested but did not get, and messages it was given
    failed_batch: int | None = None  # batch of the query that made it fail
    question: ScriptQuestion | None = None  # the script waits until it is answered


@dataclass(frozen=True, slots=True)
class ExecutorSeen:
    """One executor of a driver on a cluster, according to Spark's own status store."""

    id: str
    address: str  # "host:port"
    cores: int
    active: bool
    added_at: str  # ISO 8601 UTC
    removed_at: str | None = None
    reason: str = ""  # why it was removed, in Spark's words


@dataclass(frozen=True, slots=True)
class ExecutorsWanted:
    """What a cluster driver requests while it has no active executor or no master."""

    since: str  # ISO 8601 UTC
    memory_mb: int  # per executor
    cores: int  # minimum per executor
    #: (cores, MB) of each worker of a standalone cluster, or node of YARN; None: not reported
    workers: tuple[tuple[int, int], ...] | None = None
    overhead_mb: int = 0  # requested from YARN in addition
    free: tuple[tuple[int, int], ...] | None = None  # those that are free; None: unknown
    application_master: bool = False  # it is requesting YARN's application master
    #: Why the newest pod waits or has ended, "" if that is not known; None: executors are not pods
    pod_reason: str | None = None


@dataclass(frozen=True, slots=True)
class DriverStatus(WireForm):
    """The complete status that a driver reports."""

    epoch: int
    applied_generation: int
    at: str
    ready: bool = False  # the session is up
    step: str = ""  # the newest step of its start
    spark_version: str = ""
    java_version: str = ""
    application_id: str = ""
    jvm_pid: int | None = None
    runs: tuple[RunStatus, ...] = ()
    executors: tuple[ExecutorSeen, ...] = ()  # on a cluster: the current ones, and the newest lost
    wanted: ExecutorsWanted | None = None  # there is no active executor, and some are requested
    error: RunError | None = None  # of the driver itself: a session that cannot be built
    script: ScriptReport | None = None  # if the driver runs one
    found: tuple[FoundQuery, ...] = ()  # the queries that the script has started
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Ident(WireForm):
    """The driver's processes: (boot_id, pid, start_time) is never reused."""

    boot_id: str
    pid: int  # the driver's Python
    start_time: int  # clock ticks since boot, /proc/PID/stat field 22
    shim_pid: int
    shim_start_time: int
    spawned_at: str
    jvm_pid: int | None = None
    jvm_start_time: int | None = None
    init_pid: int | None = None  # of its PID namespace: when it ends, all in it ends
    init_start_time: int | None = None
    protocol: int = PROTOCOL


class Killer(StrEnum):
    """What killed a driver that did not end on its own, as far as its shim knows."""

    NOBODY = ""  # or unknown
    ISOLATION_LATE = "walls_late"  # the shim: bubblewrap did not set up the sandbox in time
    ISOLATION_FAILED = "walls_failed"  # bubblewrap itself ended before a driver existed
    PYTHON_LATE = "python_late"  # the shim: Python outlived its JVM, or a SIGTERM
    JVM_LATE = "jvm_late"  # the shim or the driver: the JVM outlived its Python
    WORKER = "worker"  # a worker, for the reason in `ExitReport.kill_reason`
    STRANGER = "stranger"  # SIGKILL that is not ours, and the kernel reports that it is not its own
    MEMORY_OR_STRANGER = "memory_or_stranger"  # the kernel has killed something on this host


@dataclass(frozen=True, slots=True)
class ExitReport(WireForm):
    """How the driver's processes ended: "0", "1"…, "SIGKILL"…, or "UNKNOWN"; never a guess."""

    python: str
    jvm: str
    core: bool
    oom: bool
    at: str
    last_seq: int | None = None  # of the outbox; None if the driver could not report it
    log_tail: str = ""
    killed: Killer = Killer.NOBODY
    kill_reason: str = ""  # `Reason`, if a worker killed it
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Current(WireForm):
    """An application's newest driver: shims with other epochs exit."""

    epoch: int
    directory: str


#: Fields that drivers of the last release do not know. Such a driver cannot read a file with one of
#: them, so they are left out while they have no value.
_NEW = frozenset({"dump", "kill_reason", "catalogs", "pod", "grace_s", "ended_hosts"})
#: Fields in files of the last release's drivers that mean nothing any more: the host account that
#: a driver ran as.
_FORMER = frozenset({"account"})


def _without_new(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value or name not in _NEW}


def read(kind: Any, value: Any) -> Any:
    """Return plain JSON as the type `kind`: dataclasses, tuples, enums, or unchanged."""
    if isinstance(kind, UnionType):  # always "or None" here
        return None if value is None else read(get_args(kind)[0], value)
    if is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        parts = {name: part for name, part in dict(value).items() if name not in _FORMER}
        fields = {name: read(hints.get(name), part) for name, part in parts.items()}
        return kind(**fields)  # type: ignore[operator]
    if get_origin(kind) is tuple:
        first, rest = get_args(kind)
        kinds = [first] * len(value) if rest is Ellipsis else [first, rest]
        return tuple(read(*pair) for pair in zip(kinds, value, strict=True))
    return kind(value) if isinstance(kind, type) and issubclass(kind, StrEnum) else value


_hints = cache(get_type_hints)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _object(text: str) -> dict[str, Any]:
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise ValueError("the file does not contain a JSON object")
    protocol = raw.get("protocol", PROTOCOL)
    if protocol != PROTOCOL:
        raise ValueError(f"protocol {protocol} is not {PROTOCOL}, which this release uses")
    storable: dict[str, Any] = _storable(raw)
    return storable


def _storable(value: Any) -> Any:
    """Replace what PostgreSQL rejects in text and JSON: NUL, and halves of surrogate pairs."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_storable(name): _storable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_storable(part) for part in value]
    return value
