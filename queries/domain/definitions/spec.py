"""The one JSON form of a definition, shared by page, API, revision and assignment.

The models check types and shape only; what makes a definition workable (names, triggers
against sinks, allowed configuration keys…) is said by `validation.py`, field by field. What a
form shows of a field and its type does not say stands with the field too, as `Shown`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _as_text(value: Any) -> Any:
    """Write numbers and truth values as Spark's options want them: `20` as "20"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


@dataclass(frozen=True, slots=True)
class Shown:
    """How a form shows a field: what its type and default do not say."""

    label: str
    hint: str = ""
    placeholder: str = ""
    rows: int = 0  # of a box for several lines; 0: one line
    mono: bool = False
    commas: bool = False  # several names between commas, not one a line
    connectors: bool = False  # names to tick among the installation's
    required: bool = False
    attrs: Mapping[str, str | bool] = field(default_factory=dict)  # of the HTML element
    words: Mapping[str, str] = field(default_factory=dict)  # of each value of a choice

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add nothing to the JSON schema, for which pydantic asks whatever a field carries."""


_LOOK = frozenset(each.name for each in fields(Shown))


def shown(label: str, hint: str = "", placeholder: str = "", **more: Any) -> Any:
    """Return a model's field; of `more`, forms have what `Shown` names, `Field` the rest."""
    look = {name: more.pop(name) for name in _LOOK & more.keys()}
    return Field(json_schema_extra=Shown(label, hint, placeholder, **look), **more)


#: Metadata of a field that holds a model: the model's fields keep their own names on the form.
FLAT = "flat"

_DESCRIPTION = ("What it is for", "A sentence that its page shows.")
_TRIGGERS = {
    "processing_time": "processing time: a batch every interval",
    "available_now": "available now: read all there is, then end",
    "once": "once: a single batch, then end",
    "continuous": "continuous: Kafka, map-like, at least once",
    "real_time": "real time: Kafka, update mode, milliseconds",
}
_INTERVAL = (
    "Interval",
    "As in 10 seconds. Processing time: 0 seconds is as fast as possible. "
    "Real time: 5 seconds or more.",
    "10 seconds",
)


#: A value of an option, of configuration or of the environment: always text for Spark.
Text = Annotated[str, BeforeValidator(_as_text)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Watermark(_Frozen):
    """How late rows may come: Spark's `withWatermark(column, delay)`."""

    column: str = shown("Watermark column", "", "sched_dep", mono=True)
    delay: str = shown("Rows may be late by", "", "10 minutes", mono=True)


class Source(_Frozen):
    """A streaming source: a temporary view named `name` over `spark.readStream`."""

    name: str = shown("Name", "The SQL text reads it by this name.", "flights", mono=True)
    format: str = shown("Format", "", "json", mono=True, attrs={"list": "source-formats"})
    options: dict[str, Text] = shown(
        "Options",
        "",
        "path = /data/flights/in\nmaxFilesPerTrigger = 20",
        rows=2,
        default_factory=dict,
    )
    ddl_schema: str = shown(
        "Schema",
        "DDL. File sources need one; Kafka and rate bring their own.",
        "carrier STRING, dep_delay DOUBLE, sched_dep TIMESTAMP",
        rows=2,
        default="",
        alias="schema",
    )
    watermark: Watermark | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Table(_Frozen):
    """A static table to join with: a temporary view named `name` over `spark.read`."""

    name: str = shown("Name", "", "airlines", mono=True)
    format: str = shown("Format", "", "csv", mono=True, attrs={"list": "table-formats"})
    options: dict[str, Text] = shown(
        "Options", "", "path = /data/airlines.csv\nheader = true", rows=2, default_factory=dict
    )
    ddl_schema: str = shown(
        "Schema", "", "carrier STRING, name STRING", rows=2, default="", alias="schema"
    )

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Sink(_Frozen):
    """Where the rows go: `writeStream.format(...)`."""

    format: str = shown(
        "Sink format",
        "parquet, json, kafka, console, noop… Python functions that return a writer "
        "leave it empty.",
        "parquet",
        mono=True,
        attrs={"list": "sink-formats"},
    )
    options: dict[str, Text] = shown(
        "Sink options", "", "path = /data/delays", rows=2, default_factory=dict
    )
    output_mode: Literal["append", "update", "complete"] = shown(
        "Output mode",
        words={
            "append": "append: rows that will not change any more",
            "update": "update: rows that changed in the batch",
            "complete": "complete: the whole result each batch",
        },
        default="append",
    )
    partition_by: tuple[str, ...] = shown(
        "Partition by", "Columns, between commas.", "day", mono=True, commas=True, default=()
    )


class ProcessingTime(_Frozen):
    """A batch every `interval`; "0 seconds" is as fast as possible."""

    kind: Literal["processing_time"] = shown("Trigger", words=_TRIGGERS, default="processing_time")
    interval: str = shown(*_INTERVAL, mono=True, default="0 seconds")


class Once(_Frozen):
    """One batch, then end (deprecated by Spark: availableNow is better)."""

    kind: Literal["once"] = shown("Trigger", words=_TRIGGERS, default="once")


class AvailableNow(_Frozen):
    """Read all there is now, in as many batches as it takes, then end."""

    kind: Literal["available_now"] = shown("Trigger", words=_TRIGGERS, default="available_now")


class Continuous(_Frozen):
    """Continuous processing; `interval` is the checkpoint interval."""

    kind: Literal["continuous"] = shown("Trigger", words=_TRIGGERS, default="continuous")
    interval: str = shown(*_INTERVAL, mono=True)


class RealTime(_Frozen):
    """Real-time mode; `interval` is the length of a batch, 5 seconds or more."""

    kind: Literal["real_time"] = shown("Trigger", words=_TRIGGERS, default="real_time")
    interval: str = shown(*_INTERVAL, mono=True, default="5 seconds")


Trigger = Annotated[
    ProcessingTime | Once | AvailableNow | Continuous | RealTime, Field(discriminator="kind")
]

#: Triggers after which a query ends by itself, and is then COMPLETED.
ENDING_TRIGGERS = frozenset({"once", "available_now"})


class _QueryBase(_Frozen):
    description: str = shown(*_DESCRIPTION, default="", max_length=2000)
    sink: Sink | None = None
    trigger: Trigger = Field(default_factory=ProcessingTime)
    pool: str = shown(
        "Scheduler pool",
        "A pool of the application; empty is Spark's default pool.",
        attrs={"list": "pool-names"},
        default="",
    )
    conf: dict[str, Text] = shown(
        "SQL configuration of its session",
        "One key = value a line, for this query alone.",
        "spark.sql.shuffle.partitions = 4",
        rows=3,
        default_factory=dict,
    )


class SqlQuery(_QueryBase):
    """A SQL text over named sources and tables."""

    kind: Literal["sql"] = "sql"
    sources: tuple[Source, ...]
    tables: tuple[Table, ...] = ()
    sql: str = shown(
        "SQL",
        "One query over the sources and tables above. Commands are refused.",
        "SELECT carrier, window(sched_dep, '1 hour') AS hour, avg(dep_delay) AS delay\n"
        "FROM flights\nGROUP BY carrier, window(sched_dep, '1 hour')",
        rows=10,
        attrs={"wrap": "off"},
    )


class PythonQuery(_QueryBase):
    """A function `module:function(spark, params)` under one of the application's roots."""

    kind: Literal["python"] = "python"
    function: str = shown(
        "Function",
        "module:function in a code folder of the application, called with (spark, params). "
        "It returns a DataStreamWriter, or a streaming DataFrame for the sink below.",
        "hourly:build",
        mono=True,
    )
    params: dict[str, Any] = shown(
        "Parameters", "A JSON object, given as params.", "{}", rows=4, default_factory=dict
    )


QuerySpec = Annotated[SqlQuery | PythonQuery, Field(discriminator="kind")]


class RestartPolicy(_Frozen):
    """The ladder of restarts; the defaults are those of `restart.py`."""

    base_delay_s: float = shown(
        "First delay (s)",
        "Between the second failure and its retry; then it doubles.",
        default=5,
        gt=0,
        le=3600,
    )
    max_delay_s: float = shown(
        "Longest delay (s)", "The delays stop growing here.", default=300, gt=0, le=86400
    )
    healthy_after_s: float = shown(
        "Healthy after (s)",
        "With a new commit for this long the count starts anew.",
        default=600,
        gt=0,
        le=86400,
    )
    poison_limit: int = shown(
        "Same failure at most",
        "On one batch without a commit: then it is broken.",
        default=3,
        ge=1,
        le=100,
    )
    probe_every_s: float = shown(
        "Probe every (s)", "How often a broken query tries again.", default=1800, gt=0, le=86400 * 7
    )
    restart_on_stall: bool = shown("Restart a query that stalls", default=False)


class ApplicationSpec(_Frozen):
    """One Spark driver process: what it runs on and with."""

    description: str = shown(*_DESCRIPTION, default="", max_length=2000)
    master: str = shown(
        "Spark master",
        "local[N] runs N tasks at a time on this machine; or spark://host:port.",
        mono=True,
        default="local[2]",
    )
    memory: str = shown("Driver memory", "spark.driver.memory, as in 1g or 1536m.", default="1g")
    conf: dict[str, Text] = shown(
        "Spark configuration",
        "One key = value a line. Needs a fresh driver to take effect.",
        "spark.sql.shuffle.partitions = 4",
        rows=3,
        default_factory=dict,
    )
    env: dict[str, Text] = shown(
        "Environment",
        "For a secret give a reference: env:NAME or file:NAME. The driver resolves it.",
        "API_TOKEN = env:API_TOKEN",
        rows=2,
        default_factory=dict,
    )
    python_path: tuple[str, ...] = shown(
        "Code folders",
        "Absolute paths, one a line, under an allowed root. Each driver runs from a copy.",
        "/srv/streams/flights",
        rows=2,
        default=(),
    )
    connectors: tuple[str, ...] = shown(
        "Connectors",
        "Jars of the installation that the driver is started with.",
        connectors=True,
        default=(),
    )
    scheduler_mode: Literal["FIFO", "FAIR"] = shown(
        "Scheduler",
        words={
            "FAIR": "FAIR: pools share the cores by weight",
            "FIFO": "FIFO: the first job takes what it can use",
        },
        default="FAIR",
    )
    failure_scope: Literal["query", "application"] = shown(
        "When a query fails",
        words={
            "query": "that query alone restarts, its neighbours stream on",
            "application": "the driver ends and starts all its queries afresh",
        },
        default="query",
    )
    policy: Annotated[RestartPolicy, FLAT] = Field(default_factory=RestartPolicy)
    listeners: tuple[str, ...] = shown(
        "Your listeners",
        "module:Class of a StreamingQueryListener, one a line. Each call is timed.",
        "monitoring:AuditListener",
        rows=2,
        default=(),
    )
    require_preflight: bool = shown(
        "A revision starts only once it has passed a preflight on its checkpoint", default=False
    )


class PoolSpec(_Frozen):
    """A FAIR scheduler pool of an application."""

    name: str = shown("Name", "Queries name their pool by it.", required=True)
    weight: int = shown(
        "Weight",
        "A pool of weight 2 gets twice the cores of one of weight 1, when both want them.",
        default=1,
        ge=1,
        le=1000,
    )
    min_share: int = shown(
        "minShare (cores)",
        "Served before weights count. 1 keeps a light query fast beside heavy ones.",
        default=0,
        ge=0,
        le=1000,
    )
    mode: Literal["FIFO", "FAIR"] = shown(
        "Within the pool",
        words={"FAIR": "FAIR: its queries take turns", "FIFO": "FIFO: first come, first served"},
        default="FAIR",
    )
