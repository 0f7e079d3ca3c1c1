"""The one JSON form of a definition, shared by page, API, revision and assignment.

The models check types and shape only; what makes a definition workable (names, triggers
against sinks, allowed configuration keys…) is checked in `validation`, field by field.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from queries.domain.restart import RestartPolicy


def _as_text(value: Any) -> Any:
    """Write numbers and booleans as Spark's options expect them: `20` as "20"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_TAKEN = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
#: A value of an option, of configuration or of the environment: always text for Spark.
Text = Annotated[
    str,
    BeforeValidator(_as_text),
    WithJsonSchema({"anyOf": _TAKEN}, mode="validation"),
]


class StrictForm(BaseModel):
    """A form: nothing in it changes, and a field that it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Watermark(StrictForm):
    """How late rows may come: Spark's `withWatermark(column, delay)`."""

    column: str
    delay: str  # a Spark interval: "10 minutes"


class Source(StrictForm):
    """A streaming source: a temporary view named `name` over `spark.readStream`."""

    name: str
    format: str
    options: dict[str, Text] = Field(default_factory=dict)
    ddl_schema: str = Field(default="", alias="schema")  # DDL; empty where the format has its own
    watermark: Watermark | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Table(StrictForm):
    """A static table to join with: a temporary view named `name` over `spark.read`."""

    name: str
    format: str
    options: dict[str, Text] = Field(default_factory=dict)
    ddl_schema: str = Field(default="", alias="schema")

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Sink(StrictForm):
    """Where the rows go: `writeStream.format(...)`."""

    format: str
    options: dict[str, Text] = Field(default_factory=dict)
    output_mode: Literal["append", "update", "complete"] = "append"
    partition_by: tuple[str, ...] = ()


class ProcessingTime(StrictForm):
    """A batch every `interval`; "0 seconds" is as fast as possible."""

    kind: Literal["processing_time"] = "processing_time"
    interval: str = "0 seconds"


class Once(StrictForm):
    """One batch, then end (deprecated by Spark: availableNow is better)."""

    kind: Literal["once"] = "once"


class AvailableNow(StrictForm):
    """Read all there is now, in as many batches as it takes, then end."""

    kind: Literal["available_now"] = "available_now"


class Continuous(StrictForm):
    """Continuous processing; `interval` is the checkpoint interval."""

    kind: Literal["continuous"] = "continuous"
    interval: str


class RealTime(StrictForm):
    """Real-time mode; `interval` is the length of a batch, 5 seconds or more."""

    kind: Literal["real_time"] = "real_time"
    interval: str = "5 seconds"


Trigger = Annotated[
    ProcessingTime | Once | AvailableNow | Continuous | RealTime, Field(discriminator="kind")
]

#: Sinks of Spark's whose rows are stored nowhere.
UNKEPT_SINKS = frozenset({"noop", "console", "memory"})
#: Sinks of Spark's that list no batches of their own: continuous processing and async progress
#: tracking take none that does.
UNLISTED_SINKS = UNKEPT_SINKS | {"kafka"}
#: Triggers after which a query ends by itself, and is then COMPLETED.
ENDING_TRIGGERS = frozenset({"once", "available_now"})
#: Triggers whose tasks never end.
HOLDING_TRIGGERS = frozenset({"continuous", "real_time"})

#: How Spark shares cores between jobs: of an application, and within one of its pools.
SchedulerMode = Literal["FIFO", "FAIR"]
SCHEDULER_MODES = list(get_args(SchedulerMode))


class _QueryBase(StrictForm):
    description: str = Field(default="", max_length=2000)  # what it is for, shown on its page
    sink: Sink | None = None
    trigger: Trigger = Field(default_factory=ProcessingTime)
    pool: str = ""  # scheduler pool of the application; empty: Spark's default pool
    conf: dict[str, Text] = Field(default_factory=dict)  # session SQL configuration, allowlisted


class SqlQuery(_QueryBase):
    """A SQL text over named sources and tables."""

    kind: Literal["sql"] = "sql"
    sources: tuple[Source, ...]
    tables: tuple[Table, ...] = ()
    sql: str


class PythonQuery(_QueryBase):
    """A function `module:function(spark, params)` under one of the application's roots."""

    kind: Literal["python"] = "python"
    function: str
    params: dict[str, Any] = Field(default_factory=dict)


QuerySpec = Annotated[SqlQuery | PythonQuery, Field(discriminator="kind")]


class Submit(StrictForm):
    """What `spark-submit` takes and an application has no field for; 0: not given."""

    py_files: tuple[str, ...] = ()  # --py-files: .py, .zip and .egg files in the code folders
    files: tuple[str, ...] = ()  # --files: in the code folders, found by SparkFiles.get(name)
    executor_memory: str = ""  # spark.executor.memory
    executor_cores: int = Field(default=0, ge=0, le=1024)  # spark.executor.cores
    num_executors: int = Field(default=0, ge=0, le=10000)  # spark.executor.instances
    total_executor_cores: int = Field(default=0, ge=0, le=100000)  # spark.cores.max


class Script(StrictForm):
    """A PySpark program, run as it is: a file, or a module as `python -m` runs one."""

    file: str = ""  # absolute, in one of the application's code folders
    module: str = ""  # "package.module"
    arguments: tuple[str, ...] = ()  # sys.argv[1:]
    submit: Submit = Field(default_factory=Submit)


class Code(StrictForm):
    """Code that Headgate keeps itself: an upload, or a folder of a commit in git."""

    upload: str = Field(default="", max_length=71)  # "sha256:…", as `POST code/` answers
    git: str = Field(default="", max_length=500)  # https://host/path, ssh://git@host/path
    commit: str = Field(default="", max_length=64)  # whole hash
    folder: str = Field(default="", max_length=500)  # of the repository; "" for all of it


class ApplicationSpec(StrictForm):
    """One Spark driver process: what it runs on and with."""

    #: Queries that are defined here, or those that a script of the user's starts.
    kind: Literal["queries", "script"] = "queries"
    script: Script | None = None
    description: str = Field(default="", max_length=2000)  # what it is for, shown on its page
    master: str = "local[2]"
    memory: str = "1g"  # spark.driver.memory
    conf: dict[str, Text] = Field(default_factory=dict)  # allowlisted Spark configuration
    env: dict[str, Text] = Field(default_factory=dict)  # values may be "env:NAME" or "file:NAME"
    python_path: tuple[str, ...] = ()  # absolute code roots under an allowed root
    code: Code | None = None  # imported after what lies in python_path
    packages: str = ""  # a requirements text: wheels that the code imports
    connectors: tuple[str, ...] = ()
    scheduler_mode: SchedulerMode = "FAIR"
    failure_scope: Literal["query", "application"] = "query"
    policy: RestartPolicy = Field(default_factory=RestartPolicy)
    listeners: tuple[str, ...] = ()  # "module:Class", plain StreamingQueryListeners
    require_preflight: bool = False  # a revision starts only once it has passed one

    @property
    def has_code(self) -> bool:
        """Return whether modules of its authors can be imported."""
        return bool(self.python_path) or self.code is not None


class PoolSpec(StrictForm):
    """A FAIR scheduler pool of an application."""

    name: str
    weight: int = Field(default=1, ge=1, le=1000)
    min_share: int = Field(default=0, ge=0, le=1000)
    mode: SchedulerMode = "FAIR"
