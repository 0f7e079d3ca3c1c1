"""The specification of a definition, and what must happen before a changed field takes effect.

The models check only types and shape; `validation` checks field by field whether a definition can
work (names, triggers against sinks, allowed configuration keys…). Each field of a query and of an
application declares what changing it requires (`effects`).

Each field of the models in `spec` declares its effect there, and only there; saves, deploys, drift,
the preflight's digest and the pages all use that declaration. Flink's Kubernetes operator does the
same with annotations (`@SpecDiff`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema

from queries.domain.restart import RestartPolicy
from queries.domain.sparks import OURS, PINS, Spark


class Effect(IntEnum):
    """What a change requires, weakest first; each field has one of these as its metadata."""

    words: str

    def __new__(cls, rank: int, words: str) -> "Effect":
        """Return a member that compares by its rank."""
        member = int.__new__(cls, rank)
        member._value_, member.words = rank, words
        return member

    NONE = 0, "none"  # takes effect when saved
    QUERY = 1, "query restart"
    DRIVER = 2, "driver restart"
    CHECKPOINT = 3, "new checkpoint"  # the current one keeps its original value


#: Configuration that a checkpoint keeps from its first batch on, regardless of later definitions.
#: Contains the keys of all versions: keys that the application's version lacks are rejected.
PINNED = frozenset(PINS)


def declared(model: type[BaseModel]) -> dict[str, Effect]:
    """Return each field's effect by JSON name; raise `KeyError` if a field does not declare one."""
    by_field = {}
    for name, field in model.model_fields.items():
        effects = [annotation for annotation in field.metadata if isinstance(annotation, Effect)]
        if len(effects) != 1:
            raise KeyError(f"{model.__name__}.{name} declares {len(effects)} effects")
        by_field[field.alias or name] = effects[0]
    return by_field


def changed_fields(
    model: type[BaseModel], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Effect]:
    """Return the fields that differ between two definitions in JSON, with the effect of each.

    Missing fields count as their defaults. Configuration is compared key by key.
    """
    old, new = _whole(model, before), _whole(model, after)
    effects = {}
    for name, effect in declared(model).items():
        if old.get(name) == new.get(name):
            continue
        if name != "conf":
            effects[name] = effect
            continue
        sides = (old.get(name) or {}, new.get(name) or {})
        for key in sorted(sides[0].keys() | sides[1].keys()):
            if sides[0].get(key) != sides[1].get(key):
                effects[f"conf.{key}"] = Effect.CHECKPOINT if key in PINNED else effect
    return effects


def strongest(changes: Mapping[str, Effect]) -> Effect:
    """Return the strongest effect of these changes."""
    return max(changes.values(), default=Effect.NONE)


def _whole(model: type[BaseModel], spec: Mapping[str, Any]) -> dict[str, Any]:
    return model.model_validate(spec).model_dump(mode="json", by_alias=True)


LONGEST_REQUIREMENTS = 20_000  # characters of the requirements of an application
LONGEST_VIEW = 128  # characters of the name of a source or a table
MOST_THRESHOLDS = 20


def _at_most(most: int, **more: Any) -> Any:
    """Return a text field whose length the validation limits, with a problem in our words."""
    return Field(json_schema_extra={"maxLength": most}, **more)


def _as_text(value: Any) -> Any:
    """Convert numbers and booleans to the strings that Spark's options expect: `20` to "20"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_SCALARS = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
#: A value of an option, of configuration or of the environment: always text for Spark.
Text = Annotated[
    str,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": _SCALARS}, mode="validation"),
]


class StrictForm(BaseModel):
    """An immutable form that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


@dataclass(frozen=True, slots=True)
class Longest:
    """The maximum length that REST's schema states; the form's own check explains more."""

    max_length: int


class Watermark(StrictForm):
    """How late rows may arrive: Spark's `withWatermark(column, delay)`."""

    column: str  # a timestamp column of the source
    delay: str  # watermark delay as a Spark interval: "10 minutes"


class Source(StrictForm):
    """A streaming source: a temporary view named `name` over `spark.readStream`."""

    name: str = _at_most(LONGEST_VIEW)  # its name in the SQL
    format: str  # `kafka`, `rate`, `delta`, `parquet`, `json` or another installed format
    options: dict[str, Text] = Field(default_factory=dict)  # Spark's options for the format
    ddl_schema: str = Field(default="", alias="schema")  # DDL string, unless the format has its own
    watermark: Watermark | None = None  # if omitted, state is never dropped

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Table(StrictForm):
    """A static table to join with: a temporary view named `name` over `spark.read`."""

    name: str = _at_most(LONGEST_VIEW)  # its name in the SQL
    format: str  # a batch format: `parquet`, `delta`, `csv` or another installed format
    options: dict[str, Text] = Field(default_factory=dict)  # Spark's options for the format
    ddl_schema: str = Field(default="", alias="schema")  # DDL string, unless the format has its own

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Sink(StrictForm):
    """Where the rows go: `writeStream.format(...)`."""

    format: str  # `parquet`, `delta`, `kafka`, `console`, `noop` or another installed format
    options: dict[str, Text] = Field(default_factory=dict)  # Spark's options for the format
    output_mode: Literal["append", "update", "complete"] = "append"  # which rows a batch writes
    partition_by: tuple[str, ...] = ()  # columns, for file formats and tables only


class TriggerKind(StrEnum):
    """The triggers, by the names that definitions use."""

    PROCESSING_TIME = "processing_time"
    ONCE = "once"
    AVAILABLE_NOW = "available_now"
    CONTINUOUS = "continuous"
    REAL_TIME = "real_time"


class _TriggerBase(StrictForm):
    #: The argument of Spark's `trigger(...)`; its value is the interval, or True.
    spark: ClassVar[str]
    #: Its queries end by themselves, and are then COMPLETED.
    ends: ClassVar[bool] = False
    #: Its tasks never end: each holds a core.
    holds: ClassVar[bool] = False

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of Spark's `trigger(...)`."""
        return {self.spark: getattr(self, "interval", True)}


class ProcessingTime(_TriggerBase):
    """A batch every `interval`; "0 seconds" means as fast as possible."""

    spark = "processingTime"
    kind: Literal["processing_time"] = "processing_time"
    interval: str = "0 seconds"  # time between the starts of two batches


class Once(_TriggerBase):
    """Read everything in one batch, then end (deprecated in Spark; availableNow is better)."""

    spark, ends = "once", True
    kind: Literal["once"] = "once"


class AvailableNow(_TriggerBase):
    """Read everything available now, in as many batches as needed, then end."""

    spark, ends = "availableNow", True
    kind: Literal["available_now"] = "available_now"


class Continuous(_TriggerBase):
    """Continuous processing; `interval` is the checkpoint interval."""

    spark, holds = "continuous", True
    kind: Literal["continuous"] = "continuous"
    interval: str  # time between two checkpoint entries


class RealTime(_TriggerBase):
    """Real-time mode; `interval` is the length of a batch, 5 seconds or more."""

    spark, holds = "realTime", True
    kind: Literal["real_time"] = "real_time"
    interval: str = "5 seconds"  # batch length, 5 seconds or more


Trigger = Annotated[
    ProcessingTime | Once | AvailableNow | Continuous | RealTime, Field(discriminator="kind")
]
#: Kind -> its model.
TRIGGERS: Mapping[TriggerKind, type[_TriggerBase]] = {
    TriggerKind(model.model_fields["kind"].default): model
    for model in get_args(get_args(Trigger)[0])
}

#: Spark's file formats; a sink with one of these formats keeps its own log of committed batches.
FILES = frozenset({"json", "csv", "parquet", "orc", "text", "avro"})
#: Spark's sinks that store their rows nowhere.
UNKEPT_SINKS = frozenset({"noop", "console", "memory"})
#: Spark's sinks that keep no log of batches. Continuous processing and async progress tracking
#: accept no others.
UNLISTED_SINKS = UNKEPT_SINKS | {"kafka"}
#: Triggers whose queries end by themselves, and are then COMPLETED.
ENDING_TRIGGERS = frozenset(kind for kind, model in TRIGGERS.items() if model.ends)
#: Triggers whose tasks never end.
HOLDING_TRIGGERS = frozenset(kind for kind, model in TRIGGERS.items() if model.holds)

#: How Spark shares cores between jobs, in an application and within each of its pools.
SchedulerMode = Literal["FIFO", "FAIR"]
SCHEDULER_MODES = list(get_args(SchedulerMode))


#: What a threshold limits. Units: records, seconds, bytes, files, rows a second, rows.
ThresholdFigure = Literal[
    "records_behind",
    "seconds_behind",
    "bytes_behind",
    "files_behind",
    "rows_per_second_below",
    "batch_seconds",
    "late_rows",
    "state_rows",
]


class Threshold(StrictForm):
    """A limit on one of a query's figures; crossing it opens an incident.

    Either `value` or `factor` is set; 0 means not set.
    """

    figure: ThresholdFigure  # the limited figure; its name contains the unit
    value: float = Field(default=0.0, ge=0, le=1e18)  # the limit, in the figure's unit
    #: For `batch_seconds` only: a multiple of last week's 95th percentile of hourly means.
    factor: float = Field(default=0.0, ge=0, le=1000)
    window_minutes: int = Field(default=10, ge=5, le=1440)  # averaging or summing window


class Schedule(StrictForm):
    """When a query or a script starts automatically: one of `cron`, `after` and `files`."""

    #: Five fields: minute, hour, day of month, month, day of week; interpreted in `time_zone`.
    cron: str = Field(default="", max_length=200)
    time_zone: str = Field(default="UTC", max_length=64)  # IANA name: "Europe/Berlin"
    #: The upstream query, whose runs it follows.
    after: str = Field(default="", max_length=160)
    #: Which runs count: those that have read all available data, or all that are not restarted.
    after_end: Literal["completed", "any"] = "completed"
    #: A folder or prefix within the allowed paths; new files at any depth start a run.
    files: str = Field(default="", max_length=1024)
    #: Seconds without another new file before it starts; the longest wait is ten times this.
    quiet_period_s: int = Field(default=60, ge=0, le=86_400)
    poll_interval_s: int = Field(default=60, ge=10, le=86_400)  # seconds between two listings
    #: What to do at a planned time during a run: skip it, or start when the run ends. Schedules
    #: with `after` or `files` always wait.
    overlap: Literal["skip", "queue"] = "skip"
    #: Planned times that passed while no worker was running: run the newest, or skip them all.
    missed: Literal["run_once", "skip"] = "run_once"
    #: Seconds after a planned time during which `run_once` can still run it.
    catch_up_window_s: int = Field(default=86_400, ge=60, le=31_536_000)
    #: Seconds after which a run is stopped gracefully; 0 means no limit.
    timeout_s: int = Field(default=0, ge=0, le=31_536_000)
    #: Parameter values for the query; strings can contain `{time}` and `{date}`.
    params: dict[str, Any] = Field(default_factory=dict)

    @property
    def kind(self) -> Literal["cron", "after", "files"]:
        """Return the kind of trigger that starts it."""
        return "after" if self.after else "files" if self.files else "cron"


class _QueryBase(StrictForm):
    # Purpose, shown on its page.
    description: Annotated[str, Effect.NONE] = Field(default="", max_length=2000)
    # Limits on its figures; crossing one opens an incident.
    thresholds: Annotated[tuple[Threshold, ...], Effect.NONE] = Field(
        default=(), max_length=MOST_THRESHOLDS
    )
    # Where the rows are written; required, except for a function that returns a writer.
    sink: Annotated[Sink | None, Effect.QUERY] = None
    # When a batch starts.
    trigger: Annotated[Trigger, Effect.QUERY] = Field(default_factory=ProcessingTime)
    # One of the application's scheduler pools; if empty, Spark's default pool.
    pool: Annotated[str, Effect.QUERY] = ""
    # SQL configuration of the session; a checkpoint's first batch fixes some keys.
    conf: Annotated[dict[str, Text], Effect.QUERY] = Field(default_factory=dict)
    # Default parameter values: `:name` in SQL, `params` in a function.
    params: Annotated[dict[str, Any], Effect.QUERY] = Field(default_factory=dict)
    # When it starts automatically; requires a trigger that ends.
    schedule: Annotated[Schedule | None, Effect.NONE] = None


class SqlQuery(_QueryBase):
    """A SQL text over named sources and tables."""

    kind: Annotated[Literal["sql"], Effect.QUERY] = "sql"
    sources: Annotated[tuple[Source, ...], Effect.QUERY]  # one or more streams
    tables: Annotated[tuple[Table, ...], Effect.QUERY] = ()  # static data to join with
    sql: Annotated[str, Effect.QUERY]  # one SELECT in Spark's dialect


class PythonQuery(_QueryBase):
    """A function `module:function(spark, params)` under one of the application's roots."""

    kind: Annotated[Literal["python"], Effect.QUERY] = "python"
    # `module:function`; it returns a streaming DataFrame, or a DataStreamWriter.
    function: Annotated[str, Effect.QUERY]


QuerySpec = Annotated[SqlQuery | PythonQuery, Field(discriminator="kind")]
#: Validates a query's definition of either kind.
QUERY: TypeAdapter[SqlQuery | PythonQuery] = TypeAdapter(QuerySpec)


class Submit(StrictForm):
    """`spark-submit` options that have no field in an application; 0 means not set."""

    py_files: tuple[str, ...] = ()  # `--py-files`: .py, .zip and .egg files in the code folders
    files: tuple[str, ...] = ()  # `--files`: files in the code folders, for `SparkFiles.get(name)`
    executor_memory: str = ""  # `spark.executor.memory`
    executor_cores: int = Field(default=0, ge=0, le=1024)  # `spark.executor.cores`
    num_executors: int = Field(default=0, ge=0, le=10000)  # `spark.executor.instances`
    total_executor_cores: int = Field(default=0, ge=0, le=100000)  # `spark.cores.max`


class Script(StrictForm):
    """An unmodified PySpark program: a file, or a module as run by `python -m`."""

    file: str = ""  # absolute path in one of the application's code folders
    module: str = ""  # `package.module`, run as with `python -m`
    arguments: tuple[str, ...] = ()  # `sys.argv[1:]`
    submit: Submit = Field(default_factory=Submit)  # spark-submit options


class Code(StrictForm):
    """Code stored by Headgate: an upload, or a folder of a git commit."""

    upload: str = Field(default="", max_length=71)  # `sha256:…`, as returned by `POST code/`
    git: str = Field(default="", max_length=500)  # `https://host/path` or `ssh://git@host/path`
    commit: str = Field(default="", max_length=64)  # the full hash
    ref: str = Field(default="", max_length=250)  # branch or tag that the commit was resolved from
    # Folder in the repository; if empty, the whole repository.
    folder: str = Field(default="", max_length=500)


class DriverPlace(StrEnum):
    """Where an application's driver runs, by the names that definitions use."""

    PROCESS = "process"
    POD = "pod"


class ApplicationSpec(StrictForm):
    """One Spark driver and everything it runs with."""

    #: Whether its queries are defined in Headgate or started by a script.
    kind: Annotated[Literal["queries", "script"], Effect.DRIVER] = "queries"
    # Required if `kind` is "script".
    script: Annotated[Script | None, Effect.DRIVER] = None
    # Purpose, shown on its page.
    description: Annotated[str, Effect.NONE] = Field(default="", max_length=2000)
    # Spark version, which must be installed on the host.
    spark: Annotated[Spark, Effect.DRIVER] = OURS
    # Whether the driver is a process on the worker's host, or a pod in Kubernetes.
    driver: Annotated[Literal["process", "pod"], Effect.DRIVER] = "process"
    # `local[N]`, or the URL of a cluster.
    master: Annotated[str, Effect.DRIVER] = "local[2]"
    memory: Annotated[str, Effect.DRIVER] = "1g"  # `spark.driver.memory`
    # Spark configuration, with allowed keys only.
    conf: Annotated[dict[str, Text], Effect.DRIVER] = Field(default_factory=dict)
    # Environment variables; for secrets, "env:NAME" or "file:NAME".
    env: Annotated[dict[str, Text], Effect.DRIVER] = Field(default_factory=dict)
    # Code folders: absolute paths under an allowed root.
    python_path: Annotated[tuple[str, ...], Effect.DRIVER] = ()
    # Uploaded code, or code from git; imported after `python_path`.
    code: Annotated[Code | None, Effect.DRIVER] = None
    # Requirements for the wheels that the code imports, one per line.
    packages: Annotated[str, Effect.DRIVER] = _at_most(LONGEST_REQUIREMENTS, default="")
    connectors: Annotated[tuple[str, ...], Effect.DRIVER] = ()  # names of installed connectors
    # Names of catalogs that an admin has declared.
    catalogs: Annotated[tuple[str, ...], Effect.DRIVER] = ()
    scheduler_mode: Annotated[SchedulerMode, Effect.DRIVER] = "FAIR"  # with FAIR, pools share cores
    # Whether a failure restarts only the query, or the driver with all its queries.
    failure_scope: Annotated[Literal["query", "application"], Effect.NONE] = "query"
    # How failures are retried.
    policy: Annotated[RestartPolicy, Effect.NONE] = Field(default_factory=RestartPolicy)
    # With "own", a second driver without queries waits to take over when the driver ends.
    standby: Annotated[Literal["none", "own"], Effect.NONE] = "none"
    # `module:Class` of streaming query listeners.
    listeners: Annotated[tuple[str, ...], Effect.DRIVER] = ()
    # If true, a revision can start only after it has passed a preflight.
    require_preflight: Annotated[bool, Effect.NONE] = False
    schedule: Annotated[Schedule | None, Effect.NONE] = None  # when its script starts automatically

    @property
    def has_code(self) -> bool:
        """Return whether drivers can import modules written by the application's authors."""
        return bool(self.python_path) or self.code is not None

    @property
    def runs_in_pod(self) -> bool:
        """Return whether its driver is a pod in Kubernetes."""
        return self.driver == DriverPlace.POD.value


class PoolSpec(StrictForm):
    """A FAIR scheduler pool of an application."""

    name: str  # the name in a query's `pool`
    weight: int = Field(default=1, ge=1, le=1000)  # share of the cores, relative to other pools
    min_share: int = Field(default=0, ge=0, le=1000)  # cores it gets before the rest are shared
    mode: SchedulerMode = "FAIR"  # how its queries share the cores of the pool
