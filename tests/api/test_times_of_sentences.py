"""Every sentence that rests on an earlier reading comes with the time of that reading.

Each text of an answer, and of what selectors return, is a name (an identifier, a code, or what a
user wrote), a statement about the moment of the answer (from rows of our own database and from the
definition), or it rests on something that was read from outside: then a time stands beside it. A
new text is in none of these lists, and these tests ask which it is.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from datetime import datetime
from types import FunctionType
from typing import Any, get_args, get_origin, get_type_hints

from queries import selectors
from queries.domain.readings import Dated
from tests.api.test_times_of_figures import bodies

__all__ = ["bodies"]

#: Texts that state nothing: identifiers, codes, what users wrote.
NAMES = frozenset(
    """
    accepted_by acknowledged_by act actor address affected after application applications applied_by
    arguments artifact assignee begins_with canary cancelled_by catalogs category changed_by
    cause_code channels checkpoint closed_by code_sha256 column commit connectors created_by
    cron dataset delay
    description detail_code digest downstream error_class error_type escalate_to etag exact
    executor_memory exit_jvm exit_python field file files folder follows format function git
    given_by group heap restart_block restart_block_reason_code holder host hosts id identity
    interval java_version
    judged_by key kind listeners location mac master members memory mode module name next next_times
    note noted_by object operation operations outcome owner packages partition_by path paths
    paused_by phase_detail_code phase_reason_code pool py_files python_path queries query query_id
    reason_code ref repository resolved_by root root_cause rule schema seal secret sink source
    sources spark spark_application_id spark_run_id spark_version sql state state_reason_code store
    subject table_format tables team teams temporary tested_with time_zone token token_id topic
    unsure unsure_downstream unsure_upstream upload uploaded_by upstream user value verb
    version via when
    """.split()  # noqa: SIM905
)
#: Sentences that rest on a reading: by body, the time of each in the body or one around it.
READ = {
    "AdviceBody": {"untold log_cost overload outgrown": "measured_at"},
    "AsyncOperatorBody": {"evidence advice": "until"},
    "BatchBody": {"problem state": "read_at"},
    "ChannelBody": {"last_error": "failing_since"},
    "DriverBody": {"state_reason": "state_since"},
    "ExecutorBody": {"reason": "removed_at"},
    "ExplainedIncidentBody": {
        "title detail cause place next_step next_page": "seen_at",
        "ended": "closed_at",
    },
    "ExposureBody": {"unreadable": "seen_at"},
    "FailureBody": {"root_cause": "at"},
    "FailureDetailBody": {"root_cause message log_tail culprit": "at"},
    "HealthBody": {"reason": "since"},
    "IncidentBody": {"title detail": "seen_at"},
    "PartBody": {"sentence": "SystemBody.at"},
    "ProgressLineBody": {"watermark_note": "timestamp"},
    "QueryBody": {"risk": "source_seen_at", "phase_reason phase_detail": "phase_since"},
    "QueryLagBody": {"errors": "read_at"},
    "RunBody": {"warnings": "started_at", "cause": "created_at"},
    "RunDetailBody": {"warnings": "started_at", "cause": "created_at"},
    "ScheduleBody": {"problem": "looked_at"},
    "ScheduleLineBody": {"problem": "looked_at"},
    "ScriptBody": {"phase_reason phase_detail": "phase_since"},
    "SlowBatchBody": {"says": "at"},
    "SlowCauseBody": {"says": "SlowBatchBody.at"},
    "SnapshotBody": {"reason": "taken_at"},
    "SuggestionBody": {"title brings costs doubts": "AdviceBody.measured_at"},
    "TableLineBody": {"expires error": "seen_at"},
    "ThreadDumpBody": {"threads": "at"},
    "ThresholdStatusBody": {"text": "seen_at"},
}
#: Sentences that are true at the moment of the answer, or of something that stays as it was.
FACTS: dict[str, str] = {
    "ActBody": "before reason",  # with at, as all acts
    "ApplicationBody": "notes restart_block_reason needs_restart",
    "CatalogBody": "warehouse",
    "CandidateBody": "unknown_because",
    "ChangeBody": "before what",
    "ConnectorBody": "about differing sinks way_out",
    "DeployBody": "reason",
    "DeployLineBody": "reason",
    "DeployedApplicationBody": "reason",
    "DeployedQueryBody": "reason",
    "DriftBody": "way_out",
    "FailureGroupBody": "title",
    "FieldProblemBody": "message way_out",
    "IncidentEntryBody": "text",
    "LastPlannedBody": "reason skipped",
    "LimitBody": "means reasons",
    "MovedBody": "what",
    "NamingBody": "about refused",
    "NotShown": "detail",
    "ObjectBody": "notes state_change",
    "OperationBody": "detail",
    "OperationDetailBody": "detail",
    "OperationStepBody": "at detail",
    "OutsideBody": "about text",
    "PlannedRunBody": "reason skipped",
    "PreviewBody": "refusal warnings",
    # Parts of a summary that rest on a reading state their own age (`readings.Dated`), as is tested
    # in tests/domain/supervision/test_head.py.
    "QueryBody": "notes foreign_unknown_because needs_application_restart refusal summary",
    "QueryLagBody": "unknown_because",
    "QueryRevisionBody": "author",
    "QuestionBody": "missing",
    "ScriptBody": "notes",
    "ScheduleLineBody": "starts",
    "SkippedCheckBody": "why word",
    "SparkBody": "differing way_out",
    "StarvedBody": "by change says",  # of the last hours up to now, which the body around it has
    "ThresholdPreviewBody": "text",
    "TrialBody": "notes",
    "UnknownBody": "says",
}
#: The same for fields of selectors' classes that have no time, and for functions that return texts.
#: A `TableLine` has the time in its row; what is unknown of a checkpoint's logs has it in the text.
#: An `ExplainedIncident` has the times of its incident; disks are looked at when they are asked
#: for.
FACTS_OF_SELECTORS = frozenset(
    """
    alerts.incidents.ExplainedIncident.ended alerts.own_routes.Route.bound
    checkpoint_logs.logs_unknown
    checkpoint_logs.unknown_in_flight_reason checkpoints.Pinned.pinned
    definitions.definitions.Connector.differing
    definitions.definitions.Connector.fault definitions.sparks.SparkHere.differing
    hosts.Disk.mount failures.full_disks.disk_text
    failures.what_changed.Candidate.unknown_because
    failures.what_changed.ConfigurationDifference.before
    failures.what_changed.ConfigurationDifference.what hosts.way_to
    kafka.sources.KafkaSource.brokers kafka.sources.KafkaSource.error kafka.sources.Reading.started
    lineage.Below.names lineage.incomplete
    manifests.ExistingRows.locations probes.untried code.Asking.missing code.MovedCheckpoint.before
    code.MovedCheckpoint.now secrets.Naming.about secrets.Naming.refused probes.params_change
    probes.sentences supervision.applications.ApplicationDetail.needs_restart
    supervision.history.OperationLine.detail supervision.history.OperationLine.way_out
    supervision.observation.busy_beside_a_start
    tables.TableLine.expires tables.TableReading.unknown
    triggers.advice.preflight_doubts triggers.advice.trigger_note
    triggers.advice.why_slow
    """.split()  # noqa: SIM905
)


def _texts(properties: dict[str, Any]) -> set[str]:
    """Return the names of fields that hold sentences, as far as their type and name tell."""

    def holds(one: Any) -> bool:
        if not isinstance(one, dict) or "format" in one or "enum" in one:
            return False
        kinds = one.get("type", ())
        own = {kinds} if isinstance(kinds, str) else set(kinds)
        return "string" in own or ("array" in own and holds(one.get("items")))

    return {name for name, one in properties.items() if holds(one)} - NAMES


def _read(name: str) -> set[str]:
    return {field for fields in READ.get(name, ()) for field in fields.split()}


def test_each_sentence_of_an_answer_is_of_now_or_has_the_time_of_its_reading(
    bodies: dict[str, dict[str, Any]],
) -> None:
    undated = {
        name: " ".join(sorted(more))
        for name, properties in bodies.items()
        if (more := _texts(properties) - _read(name) - {*FACTS.get(name, "").split()})
    }
    assert undated == {}, "read earlier (with a time), or a statement about now?"


def test_the_times_of_the_readings_are_there(bodies: dict[str, dict[str, Any]]) -> None:
    for name, fields in READ.items():
        for sentences, time in fields.items():
            body, _, field = time.rpartition(".")
            assert set(sentences.split()) <= bodies[name].keys(), name
            said = bodies[body or name][field]
            assert said.get("format") == "date-time", (name, time, said)
    for name, listed in FACTS.items():
        assert set(listed.split()) <= bodies[name].keys(), name


def _parts(kind: Any) -> set[Any]:
    return {kind} | {part for one in get_args(kind) for part in _parts(one)}


def _has_sentence(kind: Any) -> bool:
    """Return whether a type is a text, several of them, or texts by key."""
    if get_origin(kind) is dict:
        return _has_sentence(get_args(kind)[1])
    listed = get_origin(kind) in (list, tuple, frozenset)
    return kind is str or (listed and str in _parts(kind))


#: Functions of selectors that return sentences: their summaries tell them from names.
_SENTENCE = re.compile(r"\b(why|sentences?|reasons?|what is wrong|problems?)\b")


def _undated(module: str) -> Iterator[str]:
    """Yield a module's fields of classes, and functions, with sentences but without a time."""
    for name, one in vars(importlib.import_module(module)).items():
        if getattr(one, "__module__", "") != module or name.startswith("_"):
            continue
        short = f"{module.removeprefix('queries.selectors.')}.{name}"
        if is_dataclass(one) and isinstance(one, type):
            hints = get_type_hints(one)
            if not any({datetime, Dated} & _parts(kind) for kind in hints.values()):
                yield from (
                    f"{short}.{field}"
                    for field, kind in hints.items()
                    if _has_sentence(kind) and field not in NAMES
                )
        elif isinstance(one, FunctionType):
            summary = (one.__doc__ or "").partition("\n")[0]
            if _has_sentence(one.__annotations__.get("return")) and _SENTENCE.search(summary):
                yield short


def test_each_sentence_of_a_selector_has_a_time_or_is_of_now() -> None:
    modules = pkgutil.walk_packages(selectors.__path__, "queries.selectors.")
    found = {one for module in modules for one in _undated(module.name)}
    assert found == FACTS_OF_SELECTORS, "read earlier (with a time), or about now?"
