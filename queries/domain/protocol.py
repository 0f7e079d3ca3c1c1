"""The files that control plane, shim and driver exchange: forms, names, version.

Both sides import this module, and nothing of each other. Every file is replaced whole
(write, fsync, rename), so a reader sees an old form or a new one, never half of one.
The files are the truth and Redis a hint (`docs/architecture.md`).

A driver's directory holds two folders. A driver reads `control` and, within walls, cannot write
it; what stands in `own` it has written, and nothing there decides which process is signalled.

===========================  ==========  ===============================================
control/spec.json            launcher    `DriverSpec`, fsynced before the spawn
control/assignment.json      launcher    `Assignment`, never replaced by a lower generation
control/fairscheduler.xml    launcher    pools of the application
control/probe.json           launcher    of a probe driver, instead of an assignment
control/secrets/             launcher    within walls: the secrets that it may have
control/shim.lock            shim        held (flock) for the shim's life
control/shim.log             shim        what it says, empty as a rule
control/ident.json           shim        `Ident`
control/exit.json            shim        `ExitReport`
own/driver.log               driver      stdout and stderr of Python and JVM, append
own/spark.log                driver      log4j2's rolling file
own/status.json              driver      `Status`
own/result.json              driver      of a probe driver: its findings so far
own/spool/                   driver      the outbox's events (listeners.spark)
own/driver.lock              driver      held by Python and JVM until both are gone
own/last_seq                 driver      the outbox's last number, when it has left cleanly
own/tmp/                     driver      spark.local.dir and java.io.tmpdir, removed by the shim
===========================  ==========  ===============================================

and the application's folder above it `control/current.json` (`Current`). A probe driver's
directory is in the application's folder `probes`, which has no `current.json`: several may run
at once. Of a driver that an earlier release started, all
files stand in the directory itself (`queries.driver_folder`).
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit

PROTOCOL = 1

CONTROL = "control"
OWN = "own"

SPEC = "spec.json"
ASSIGNMENT = "assignment.json"
POOLS = "fairscheduler.xml"
SECRETS = "secrets"
SHIM_LOCK = "shim.lock"
SHIM_LOG = "shim.log"
IDENT = "ident.json"
STATUS = "status.json"
EXIT = "exit.json"
CURRENT = "current.json"
DRIVER_LOG = "driver.log"
SPARK_LOG = "spark.log"
TMP = "tmp"
DRIVER_LOCK = "driver.lock"
LAST_SEQ = "last_seq"

#: Seconds that a driver has to exit when asked; then it is terminated, and as long again, killed.
LEAVE_S = 30


#: Codes that a driver's Python leaves with when something ended its Spark.
JVM_DIED = 71
SPARK_STOPPED = 74  # by users' code, or by a signal to the JVM
SCRIPT_FAILED = 75  # `Status.error` says why


class Want(StrEnum):
    """What an assignment wants of a run."""

    RUN = "RUN"
    DRAIN = "DRAIN"  # stop after the batch in flight has committed
    STOP = "STOP"  # stop at once


class RunState(StrEnum):
    """Where a run is, as its driver sees it."""

    ABSENT = "ABSENT"  # assigned, not seen by the driver yet (never written by it)
    STARTING = "STARTING"  # being built, or started without a commit
    RUNNING = "RUNNING"  # first commit or first idle event seen
    STOPPING = "STOPPING"
    ENDED = "ENDED"  # clean end: stopped as asked, or finished by itself
    FAILED = "FAILED"  # `error` says why; errors inside start() included
    REFUSED = "REFUSED"  # lock held, fenced or a stranger's checkpoint: `error`


class ScriptState(StrEnum):
    """Where a user's script is, as its driver sees it."""

    RUNNING = "RUNNING"
    RETURNED = "RETURNED"  # with exit code 0, while queries that it has started go on
    STOPPING = "STOPPING"
    COMPLETED = "COMPLETED"  # with exit code 0, and nothing runs any more
    FAILED = "FAILED"  # `Status.error` says why


class Hangs(StrEnum):
    """What of a run does not end, though it should have: its checkpoint stays locked."""

    NOTHING = ""
    START = "start"  # it is still being built: users' function, or start(), has not returned
    STOP = "stop"  # Spark's thread of the query, or a call of foreachBatch, goes on


@dataclass(frozen=True, slots=True)
class Form:
    """A file's content, as JSON."""

    def dumps(self, mask: Callable[[Any], Any] | None = None) -> str:
        """Return the JSON text of this form, passed through `mask` where one is given."""
        held = asdict(self)
        return _text(mask(held) if mask else held)

    @classmethod
    def loads(cls, text: str) -> Self:
        """Return the form that `text` holds; raise ValueError or TypeError where it holds none."""
        form: Self = read(cls, _object(text))
        return form


@dataclass(frozen=True, slots=True)
class KnownQuery:
    """A query that an earlier driver has found in the script."""

    query: int  # primary key
    identity: str  # `queries.domain.scripts.found`
    asked: str  # the checkpoint that the script names, "" for none
    location: str  # the one that it continues from
    gone: bool = False  # the script no longer starts it, as an author has said


@dataclass(frozen=True, slots=True)
class ScriptJob:
    """A user's program that a driver runs instead of queries that are defined."""

    file: str  # "" for a module; in the copies of the code, as are the files below
    module: str
    arguments: tuple[str, ...]
    folder: str  # that it works in; kept from one driver to the next
    checkpoints: str  # location below which queries without a checkpoint get one
    py_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    known: tuple[KnownQuery, ...] = ()
    accepted: tuple[str, ...] = ()  # identities that are new queries, as an author has said


@dataclass(frozen=True, slots=True)
class DriverSpec(Form):
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
    code_sha256: str  # "" where there are none
    scheduler_mode: str
    listeners: tuple[str, ...]
    redis_url: str
    stream: str  # name of the installation's event stream
    event_key: str = ""  # seals its events (listeners.wire), hexadecimal; "" before there were any
    event_settings: dict[str, Any] = field(default_factory=dict)  # listeners.spark.settings
    ui_port: int = 0  # of its Spark UI; 0 for any that is free
    ui_key: str = ""  # what asks its Spark UI must be signed by it, hexadecimal; "" for anybody
    packages: str = ""  # folder of what users' code imports after everything else; "" for none
    jars: tuple[str, ...] = ()
    secrets_dir: str = ""
    env_allowlist: tuple[str, ...] = ()  # names that "env:NAME" may resolve
    data_roots: tuple[str, ...] = ()  # in which data may lie; () for anywhere
    own_folders: tuple[str, ...] = ()  # of the control plane, in which none may
    data_umask: int = 0o022  # of the driver, whose files may be for others to read
    checkpoints: tuple[str, ...] = ()  # locations of the application's, known at the launch
    folders: tuple[str, ...] = ()  # in which further ones of the application will lie
    walls: str = ""  # `domain.walls.Mode`, set by the launcher; "" for none
    account: str = ""  # of the host that it runs as, set by the launcher; "" for the worker's
    stop_timeout_s: float = LEAVE_S  # for spark.stop() and the whole exit
    start_deadline_s: float | None = None  # to Started, None: not checked; of a probe, to Spark
    script: ScriptJob | None = None  # runs it; None: does what is assigned
    probe: bool = False  # runs `queries.runtime.probes.main` on its probe.json; no epoch fences it
    protocol: int = PROTOCOL

    def sees(self, location: str) -> bool:
        """Whether a checkpoint is within the driver's walls; True where there are none.

        What is written elsewhere within walls would be gone with the driver. An account of its own
        is given further ones while it runs.
        """
        if not self.walls or self.account or location in self.checkpoints:
            return True
        path = urlsplit(location)
        return path.scheme not in ("", "file") or any(
            unquote(path.path).startswith(f"{folder}/") for folder in self.folders
        )


@dataclass(frozen=True, slots=True)
class AssignmentEntry:
    """One run that a driver is to host; stays until its end is acknowledged."""

    query: int  # primary keys
    name: str  # the query's name, which Spark shows
    run: int
    epoch: int  # the run's
    spec: dict[str, Any]  # QuerySpec's JSON form
    checkpoint: str
    pool: str
    want: Want
    deadline: str | None = None  # ISO 8601 UTC: after it a DRAIN becomes a STOP
    takeover: bool = False  # an author confirmed taking the checkpoint of another installation
    accepts_loss: bool = False  # an operator accepted a gap in its sources: skip it
    #: Ids of the topics that the checkpoint has offsets of, by name, as far as they are known.
    topic_ids: dict[str, list[str]] = field(default_factory=dict)
    refused: str = ""  # why it may not start: an admin has not allowed what it names
    found: int = 0  # the script's query that it is about (`FoundQuery.number`); 0: none

    @property
    def called(self) -> str:
        """Return what the driver's log calls the run: by the number that pages show."""
        return f"run {self.epoch} of {self.name}"


@dataclass(frozen=True, slots=True)
class Assignment(Form):
    """Everything that a driver is to do now."""

    generation: int
    epoch: int  # the driver's: a driver ignores another's
    queries: tuple[AssignmentEntry, ...] = ()
    end: bool = False  # exit when nothing runs any more
    protocol: int = PROTOCOL

    def dumps(self, mask: Callable[[Any], Any] | None = None) -> str:
        """Return the JSON text; what an earlier release's drivers do not know only where needed."""
        held = asdict(self)
        for entry in held["queries"]:
            for name in ("refused", "found"):
                if not entry[name]:
                    del entry[name]
        return _text(mask(held) if mask else held)


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed or was refused, as the driver knows it."""

    error_class: str  # Spark's condition, "" where the throwable has none
    type_name: str  # of the innermost cause: "java.lang.ArithmeticException", "ValueError"
    root_cause: str  # message of the innermost cause, one paragraph
    message: str  # the whole text, at most 32 KiB
    refused: str = ""  # REFUSED only: "held" | "own" (by this driver) | "fenced" | "foreign"
    holder_pid: int | None = None
    unknown_batch: bool = True


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where one run is."""

    run: int
    query: int
    state: RunState
    spark_run_id: str | None = None
    spark_query_id: str | None = None
    asked_for: Want = Want.RUN
    started_at: str | None = None  # ISO 8601 UTC, all of them
    first_commit_at: str | None = None
    first_idle_at: str | None = None
    ended_at: str | None = None
    last_batch: int | None = None  # the last batch that committed in this run
    failed_batch: int | None = None  # the batch in flight when it failed
    failed_offsets: dict[str, Any] = field(default_factory=dict)  # {"start": …, "end": …} a source
    last_progress: dict[str, Any] | None = None
    topic_ids: dict[str, str] = field(default_factory=dict)  # Kafka's, as the driver saw them
    warnings: tuple[str, ...] = ()  # "not locked: …"
    error: RunError | None = None
    hangs: Hangs = Hangs.NOTHING  # of an ended run too: the rest of it holds the lock


@dataclass(frozen=True, slots=True)
class FoundQuery:
    """A query that a script has started; its line stands among the runs under `-number`."""

    number: int  # from 1, in this driver
    identity: str  # `queries.domain.scripts.found`
    name: str  # its queryName, "" for none
    asked: str  # the checkpoint that the script names, "" for none
    location: str  # the one that it has
    temporary: str = ""  # why nothing is recovered from its checkpoint, "" where it is
    trigger: dict[str, Any] = field(default_factory=dict)  # as a definition writes it
    started: bool = False  # Spark has taken it


@dataclass(frozen=True, slots=True)
class Question:
    """A query that the script wants to start and that is not known, while known ones are missing.

    Spark has not started it. An author says whether it is one of those that are missing.
    """

    identity: str  # `queries.domain.scripts.found`
    name: str  # its queryName, "" for none
    asked: str  # the checkpoint that the script names, "" for none
    missing: tuple[int, ...]  # primary keys of the known ones that the script has not started


@dataclass(frozen=True, slots=True)
class ScriptReport:
    """What a driver says of the script that it runs."""

    state: ScriptState
    notes: tuple[str, ...] = ()  # what it asks for and does not get, and what it was told
    failed_batch: int | None = None  # of the query by which it failed
    question: Question | None = None  # the script is ended until it is answered


@dataclass(frozen=True, slots=True)
class ExecutorSeen:
    """One executor of a driver on a cluster, as Spark's own status store knows it."""

    id: str
    address: str  # "host:port"
    cores: int
    active: bool
    added_at: str  # ISO 8601 UTC
    removed_at: str | None = None
    reason: str = ""  # why it was removed, in Spark's words


@dataclass(frozen=True, slots=True)
class Status(Form):
    """The complete status that a driver reports."""

    epoch: int
    applied_generation: int
    at: str
    ready: bool = False  # the session is up
    spark_version: str = ""
    java_version: str = ""
    application_id: str = ""
    ui_url: str = ""  # not read; of drivers of earlier releases
    jvm_pid: int | None = None
    runs: tuple[RunStatus, ...] = ()
    executors: tuple[ExecutorSeen, ...] = ()  # on a cluster: those there are, and the newest lost
    error: RunError | None = None  # the driver's own: a session that cannot be built
    script: ScriptReport | None = None  # of a driver that runs one
    found: tuple[FoundQuery, ...] = ()  # the queries that it has started
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Ident(Form):
    """Identify the driver's processes: (boot_id, pid, start_time) is never reused."""

    boot_id: str
    pid: int  # the driver's Python
    start_time: int  # clock ticks since boot, /proc/PID/stat field 22
    shim_pid: int
    shim_start_time: int
    spawned_at: str
    jvm_pid: int | None = None
    jvm_start_time: int | None = None
    init_pid: int | None = None  # of its pid namespace: with it everything in there ends
    init_start_time: int | None = None
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class ExitReport(Form):
    """How the driver's processes ended: "0", "1"…, "SIGKILL"…, or "UNKNOWN"; never a guess."""

    python: str
    jvm: str
    core: bool
    oom: bool
    at: str
    last_seq: int | None = None  # of the outbox; None where the driver could not say
    log_tail: str = ""
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Current(Form):
    """Which driver of an application is the newest: a shim of another epoch leaves."""

    epoch: int
    directory: str


def read(kind: Any, value: Any) -> Any:
    """Return plain JSON as the type that `kind` names: dataclasses, tuples, enums, or as it is."""
    if isinstance(kind, UnionType):  # always "or None" here
        return None if value is None else read(get_args(kind)[0], value)
    if is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        held = {name: read(hints.get(name), part) for name, part in dict(value).items()}
        return kind(**held)  # type: ignore[operator]
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
        raise ValueError(f"protocol {protocol} is not {PROTOCOL}, the one this version speaks")
    storable: dict[str, Any] = _storable(raw)
    return storable


def _storable(value: Any) -> Any:
    """Replace what PostgreSQL's text and JSON refuse: NUL, and halves of surrogate pairs."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_storable(name): _storable(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_storable(held) for held in value]
    return value
