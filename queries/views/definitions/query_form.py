"""The fields of a query's definition, with the words that help somebody who knows Spark."""

from django import forms

from queries.views.definitions.fields import (
    CommasField,
    ObjectField,
    PairsField,
    area,
    choice,
    text,
)

KINDS = [("sql", "SQL"), ("python", "Python")]
TRIGGERS = [
    ("processing_time", "processing time: a batch every interval"),
    ("available_now", "available now: read all available data, then end"),
    ("once", "once: a single batch, then end"),
    ("continuous", "continuous: Kafka, no aggregation, at least once"),
    ("real_time", "real time: Kafka, update mode, milliseconds"),
]
TIMED_TRIGGERS = frozenset({"processing_time", "continuous", "real_time"})
OUTPUT_MODES = [
    ("append", "append: rows that will not change again"),
    ("update", "update: rows that changed in the batch"),
    ("complete", "complete: the whole result each batch"),
]


class SourceForm(forms.Form):
    """A streaming source, read as a view of this name."""

    name = text(
        "Name", hint="The SQL text refers to it by this name.", mono=True, placeholder="flights"
    )
    format = text("Format", mono=True, placeholder="json", attrs={"list": "source-formats"})
    ddl_schema = forms.CharField(
        label="Schema",
        help_text="DDL. File sources need one; Kafka and rate have their own.",
        required=False,
        widget=area(2, "carrier STRING, dep_delay DOUBLE, sched_dep TIMESTAMP"),
    )
    options = PairsField(
        "Options", placeholder="path = /data/flights/in\nmaxFilesPerTrigger = 20", rows=2
    )
    watermark_column = text("Watermark column", mono=True, placeholder="sched_dep")
    watermark_delay = text("Rows may be late by", mono=True, placeholder="10 minutes")


class TableForm(forms.Form):
    """A static table to join with, read as a view of this name."""

    name = text("Name", mono=True, placeholder="airlines")
    format = text("Format", mono=True, placeholder="csv", attrs={"list": "table-formats"})
    ddl_schema = forms.CharField(
        label="Schema",
        required=False,
        widget=area(2, "carrier STRING, name STRING"),
    )
    options = PairsField("Options", placeholder="path = /data/airlines.csv\nheader = true", rows=2)


SourceFormSet = forms.formset_factory(SourceForm, extra=0)
TableFormSet = forms.formset_factory(TableForm, extra=0)


class QueryForm(forms.Form):
    """What a query has once: name, kind, SQL or function, sink, trigger, where it runs."""

    name = text(
        "Name", hint="Lowercase letters, digits and . _ - only. It cannot be changed later."
    )
    description = text(
        "Purpose",
        hint="Shown on its page.",
        max_length=2000,
    )
    kind = forms.ChoiceField(choices=KINDS, widget=forms.RadioSelect, initial="sql", label="Kind")
    sql = forms.CharField(
        label="SQL",
        help_text="One query over the sources and tables above. Commands are refused.",
        required=False,
        widget=area(
            10,
            "SELECT carrier, window(sched_dep, '1 hour') AS hour, avg(dep_delay) AS delay\n"
            "FROM flights\nGROUP BY carrier, window(sched_dep, '1 hour')",
            wrap="off",
        ),
    )
    function = text(
        "Function",
        hint="module:function in a code folder of the application, called with (spark, params). "
        "It returns a DataStreamWriter, or a streaming DataFrame for the sink below.",
        mono=True,
        placeholder="hourly:build",
    )
    params = ObjectField("Parameters", hint="A JSON object, passed as params.", placeholder="{}")
    sink_format = text(
        "Sink format",
        hint="parquet, json, kafka, console, noop… Leave it empty for a Python function that "
        "returns a writer.",
        mono=True,
        placeholder="parquet",
        attrs={"list": "sink-formats"},
    )
    sink_options = PairsField("Sink options", placeholder="path = /data/delays", rows=2)
    output_mode = choice("Output mode", OUTPUT_MODES)
    partition_by = CommasField(
        "Partition by", hint="Columns, separated by commas.", placeholder="day"
    )
    trigger_kind = choice("Trigger", TRIGGERS)
    trigger_interval = text(
        "Interval",
        hint="For example 10 seconds. Processing time: 0 seconds means as fast as possible. Real "
        "time: 5 seconds or more.",
        mono=True,
        placeholder="10 seconds",
    )
    home = forms.ChoiceField(
        label="Runs in",
        choices=[("own", "a driver of its own"), ("shared", "a shared application")],
        required=False,
        widget=forms.RadioSelect,
        initial="own",
    )
    application = text(
        "Application",
        hint="The name of a shared application; its queries share one driver.",
        attrs={"list": "application-names"},
    )
    pool = text(
        "Scheduler pool",
        hint="A pool of the application; leave it empty for Spark's default pool.",
        attrs={"list": "pool-names"},
    )
    conf = PairsField(
        "SQL configuration of the session",
        hint="One key = value per line, for this query only.",
        placeholder="spark.sql.shuffle.partitions = 4",
    )
    checkpoint = text(
        "Checkpoint location",
        hint="An absolute location. If empty, a folder named after the query below HEADGATE_HOME.",
        mono=True,
    )
