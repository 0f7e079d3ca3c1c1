"""Turn the sentences that rows keep into codes with values.

A text that the release before wrote is found again by its own pattern; any other becomes OTHER
with the text kept as it stands, so each row reads as before. The columns of texts hold JSON
after this step, and the next one makes them JSON columns. What these tables say is frozen here:
later releases may word things otherwise.
"""

import json
import re
import uuid

from django.db import migrations

#: code -> what the release before wrote in a column of reasons
REASONS = {
    "NEVER_STARTED": "never started",
    "ASKED_START": "start requested",
    "ASKED_STOP": "stop requested",
    "ASKED_RESTART": "restart requested",
    "WAITS_SLOT": "waits for a start slot",
    "WAITS_MEMORY": "waits for memory",
    "WAITS_DRIVER": "waits for its driver",
    "WAITS_LOCK": "waits for the checkpoint's lock",
    "WAITS_COMMIT": "waits for its first commit",
    "WAITS_SOURCE": "source not reachable",
    "COMMITTED": "first commit",
    "IDLE": "idle: nothing to read",
    "STUCK": "the stop hangs",
    "STOPPED": "stopped",
    "COMPLETED": "read all there was",
    "FAILED_RETRY": "failed; will be retried",
    "FAILED_POISON": "same error on the same batch three times",
    "FAILED_FATAL": "cannot be mended by a restart",
    "DRIVER_DIED": "its driver died",
    "HOST_SILENT": "its host is silent",
    "RETRY_DUE": "retry due",
    "REGRESSED": "failed again after it was resolved",
    "STALLED": "stalled; restarted as its policy says",
    "PROBE": "probe of a broken query",
    "PROBED": "a short-lived Spark of its own",
    "ARCHIVED": "deleted",
    "REWOUND": "rewound to an earlier batch",
    "RESET": "reset to another start",
    "LAUNCHED": "launched",
    "NOT_LAUNCHED": "could not be launched",
    "NOT_WANTED": "no query wants it",
    "REPLACED": "replaced by a fresh driver",
    "SHUTDOWN": "installation stopped",
    "RESUMED": "installation started again",
    "FENCED": "a later epoch took over",
    "FAILURE_SCOPE": "a failure ends the whole application",
    "START_TIMED_OUT": "did not start in time",
    "EXECUTOR_CAME": "an executor came",
    "EXECUTOR_LOST": "an executor was lost",
}

#: (code, what the release before wrote); the first that fits counts
PHASES = [
    ("GIVEN", "A driver has been given the query."),
    ("HOST_SILENT", "Its host does not answer; it may still run."),
    (
        "STOP_HANGS",
        "The stop hangs. Restarting the application ends it, and its neighbours too.",
    ),
    ("NO_PROGRESS", "It made no progress; it starts again."),
    ("BATCH_ENDING", "The batch in flight is being ended."),
    ("STARTS_AFTER", "It starts again when it has ended."),
    ("SESSION_STARTING", "Its driver's Spark session is starting."),
    ("QUERY_BUILDING", "Spark is building the query."),
    (
        "SOURCE_SILENT",
        "Source not reachable since {since} UTC. Spark waits without a word; "
        "it goes on by itself once the source answers.",
    ),
    ("NO_CORES", "No {what} since {since} UTC: has it a core per source partition?"),
    (
        "UNPROVEN",
        "Spark has started it; no batch has committed and no idle trigger was seen yet.",
    ),
    ("ALL_READ", "It has read all there was."),
    ("WITH_INSTALLATION", "It starts with the installation."),
    ("SLOTS_TAKEN", "{starting:d} of {limit:d} drivers are starting on this host."),
    (
        "MEMORY_TAKEN",
        "It needs {needed:d} MB; {used:d} of {budget:d} MB are taken by other drivers.",
    ),
    ("DRIVER_LEAVING", "The driver before it is leaving."),
]
#: By the subject of a transition.
CHANGES = {
    "phase": PHASES,
    "executor": [
        ("EXECUTOR_REMOVED", "executor {executor:w} on {address:w}: {why}"),
        ("EXECUTOR", "executor {executor:w} on {address:w}"),
    ],
    "checkpoint": [("TO_BATCH", "to batch {batch:d}"), ("TO_START", "to {start}")],
    "definition": [("POOL", "pool {pool}")],
    "group": [("GROUP", "{group}")],
}
#: By the reason of a driver's transition.
OF_DRIVERS = {
    "DRIVER_DIED": [("DRIVER_FAILURE", "{title}")],
    "NOT_LAUNCHED": [("NOT_LAUNCHED", "{refusal}")],
    "PROBED": [("PROBE_FOR", "{verb:w} of {query:w}")],
}
#: By the outcome of an operation.
OPERATIONS = {
    "SUPERSEDED": [
        ("DELETED_BY", "deleted by {actor}"),
        ("SUPERSEDED_BY", "{verb:w} by {actor}"),
    ],
    "CANCELLED": [("CANCELLED_BY", "cancelled by {actor}")],
    "": [("STEP", "{note}")],
}
#: Operations of one step, which say of their query what its phase says.
PLAIN = ("start", "stop", "restart")
#: Codes that this release alone writes; needed to go back.
LATER = [
    ("FAILURE", "{title}. {way_out}"),
    (
        "POISONED",
        "The same error on batch {batch} has reached the poison limit of {limit}. "
        "{title}. {way_out}",
    ),
    (
        "STOP_TIMED_OUT",
        "Its stop has timed out: a thread of it does not end, and holds its checkpoint. "
        "Restarting the application ends it, and restarts {others} too.",
    ),
    (
        "START_HANGS",
        "It is still being built by a thread that does not end, and holds its checkpoint. "
        "Restarting the application ends it, and restarts {others} too.",
    ),
    ("HANG_ENDING", "A thread of it does not end; its driver is being ended."),
    ("KILLS_DRIVER", "It ended its driver, which died {deaths} times in a row. {exit}."),
    ("TURN", "Its driver died {deaths} times in a row; {name} is starting first."),
    ("TURN_AFTER_DRIVER", "Its driver died {deaths} times in a row; it starts again."),
    ("TRIED_AGAIN", "{about} It is tried again at {at} UTC."),
    ("TRIED_AGAIN_NOW", "{about} It is tried again now."),
    ("WAITED", "{phase}: {about}"),
    ("REASON", "{reason}"),
    ("REFUSED", "{message}"),
    ("OTHER", "{text}"),
    ("LOST_ON", "Host {host} does not respond; the query may still run there."),
    (
        "WAITS_HOST",
        "Host {host} does not respond, and its checkpoint is there; "
        "it starts once the host is back.",
    ),
    ("LABELS", "labels"),
    ("TEAM", "team"),
    ("CODE_COMING", "Its code is fetched from git, or its packages are installed, on this host."),
    ("SECRET", "{secret} for {hosts}"),
    ("DATA_ROOT", "data root {root}"),
    ("STEPS_ON", "Its files are on host {host}, which does not respond."),
    ('NOTHING', ''),
    ('SCRIPT_RUNS', 'The script is running.'),
    ('SCRIPT_RETURNED', 'The script has returned; the queries that it has started go on.'),
    ('SCRIPT_DONE', 'The script has ended with exit code 0, and nothing that it started runs.'),
    ('SCRIPT_ENDING', 'Its queries stop after their batches in flight; then the script ends.'),
    ('SCRIPT_OVER', 'The script has failed, or asks about a query; its driver is ending.'),
    ('SCRIPT_RESTARTS', 'It runs again in a new driver once this one has ended.'),
    ('SCRIPT_STARTS', 'The script has not started it yet.'),
    ('SCRIPT_STOPPED', 'The script has stopped it.'),
    ('SCRIPT_MAY_RETRY', '{title}. The script may start it again; otherwise the application restarts.'),
    ('AS_BEFORE', 'as revision {revision}'),
    ('QUERY_FAILED', '{query} failed: {about}'),
    ('NOT_GOOD_IN_TIME', '{query} was not good within {minutes} min: {about}'),
    ('STOPPED_MEANWHILE', '{query} was stopped in the meantime.'),
    ('CHANGED_MEANWHILE', '{query} was changed or started on another revision in the meantime.'),
    ('AWAITS_COMMIT', 'No batch has committed and no idle trigger was seen yet. {about}'),
    ('AWAITS_BATCHES', '{seen} of {wanted} batches have committed.'),
    ('AWAITS_MINUTES', 'It has run for {seen} of {wanted} minutes.'),
    ('AWAITS_LAG', 'It is {lag} records behind its sources; before the deploy it was {before}.'),
    ('AWAITS_LOOK', 'The brokers have not said yet how far behind its sources it is; before the deploy it was {before} records.'),
    ('OPERATION_FAILED', 'The {verb} of {query} failed: {about}'),
    ('NOT_TRIED_BACK', 'It is not shown that revision {revision} of {query} can go on from the state that is there now: {about}'),
    ('NOT_BACK', '{why} Not everything could be rolled back: {about}'),
    ('LEFT_STOPPED', '{query} is new: it is stopped, and not deleted.'),
    ('AWAITS_DRIVER', 'Its driver is not ready yet. {about}'),
    ('AWAITS_QUERIES', 'Of what the script has started, {queries} has neither committed a batch nor found nothing to read.'),
    ('AWAITS_FIRST_QUERY', 'The script has not started a query yet.'),
    ('AWAITS_ANY_QUERY', 'Its driver is ready; none of its queries has committed a batch yet.'),
    ('JUDGED_RUNS', 'Judged by its own runs since the restart.'),
    ('JUDGED_SCRIPT', 'Judged by its script in driver {driver}, and by each query that it started.'),
    ('JUDGED_SCRIPT_QUERIES', 'Judged by its script in driver {driver}, which started {queries}.'),
    ('JUDGED_DRIVER', 'Judged by its driver {driver}, and by the first of its queries that ran.'),
    ('JUDGED_FAILURES', 'It did not run before: only a failure that is new counts against it.'),
    ('NOT_JUDGED', 'The script has not started it since the restart: nothing of it is judged.'),
]
_VALUES = {None: "(.+)", ":d": "(0|[1-9][0-9]*)", ":w": r"(\S+?)"}
_PROBE = "probe of "


def coded(text, patterns):
    """Return the JSON form of a sentence: its code with its values, else OTHER with all of it."""
    if not text:
        return {}
    for code, pattern in patterns:
        # plain text, name, kind, plain text, name, kind, … plain text
        parts = re.split(r"\{(\w+)(:[dw])?\}", pattern)
        names, kinds = parts[1::3], parts[2::3]
        looked_for = re.escape(parts[0])
        for kind, plain in zip(kinds, parts[3::3], strict=True):
            looked_for += _VALUES[kind] + re.escape(plain)
        found = re.fullmatch(looked_for, text, re.DOTALL)
        if found:
            values = [
                int(value) if kind == ":d" else value
                for kind, value in zip(kinds, found.groups(), strict=True)
            ]
            return {"code": code, **dict(zip(names, values, strict=True))}
    return {"code": "OTHER", "text": text}


def spoken(form):
    """Return the sentence of a JSON form, for going back to the release before."""
    if not form:
        return ""
    known = [*CHANGES.values(), *OF_DRIVERS.values(), *OPERATIONS.values(), LATER]
    pattern = next((text for table in known for code, text in table if code == form["code"]), "")

    def value(found):
        name = found[1]
        given = form.get(name, "–")
        if isinstance(given, dict):
            return spoken(given)
        if name == "reason":
            return REASONS.get(given, given)
        return given.capitalize() if name == "phase" else str(given)

    return re.sub(r"\{(\w+)(?::[dw])?\}", value, pattern).strip()


def phase_coded(text):
    """Return what was said of a phase: a sentence, or the words of its reason."""
    for code, phrase in REASONS.items():
        if text == phrase:
            return {"code": "REASON", "reason": code}
    return coded(text, PHASES)


def operation_coded(text, verb, outcome):
    """Return why an operation ended, or what it waits for."""
    if verb in PLAIN and outcome in ("FAILED", "TIMED_OUT"):
        phase, parted, about = text.partition(": ")
        if outcome == "TIMED_OUT" and parted and about and phase.isalpha():
            return {"code": "WAITED", "phase": phase.upper(), "about": phase_coded(about)}
        return phase_coded(text)
    return coded(text, OPERATIONS.get(outcome, []))


def change_coded(text, subject, reason):
    """Return what a transition says beside its reason, a code by now."""
    if subject == "driver":
        return coded(text, OF_DRIVERS.get(reason, []))
    return coded(text, CHANGES.get(subject, []))


def _rows(apps, schema_editor, model):
    return apps.get_model("queries", model).objects.using(schema_editor.connection.alias)


def link_probes(apps, schema_editor):
    """Give each probe the operation that its reason names; the newest one where two name it."""
    operations = _rows(apps, schema_editor, "Operation")
    drivers = _rows(apps, schema_editor, "Driver")
    probes = drivers.filter(kind="PROBE", state_reason__startswith=_PROBE)
    linked = set()
    for driver in probes.order_by("-epoch"):
        try:
            name = uuid.UUID(driver.state_reason.removeprefix(_PROBE))
        except ValueError:
            continue
        operation = operations.filter(uuid=name).first()
        if operation is not None and operation.pk not in linked:
            linked.add(operation.pk)
            driver.operation = operation
        driver.state_reason = "PROBED"
        driver.save(update_fields=["operation", "state_reason"])


def unlink_probes(apps, schema_editor):
    """Name each probe's operation in its reason again."""
    drivers = _rows(apps, schema_editor, "Driver").filter(kind="PROBE")
    for driver in drivers.exclude(operation=None).select_related("operation"):
        driver.state_reason = f"{_PROBE}{driver.operation.uuid}"
        driver.save(update_fields=["state_reason"])


_REASON_COLUMNS = (
    ("Query", "phase_reason"),
    ("Driver", "state_reason"),
    ("Driver", "end_wanted"),
    ("Run", "cause"),
    ("Transition", "reason"),
)


def code_reasons(apps, schema_editor):
    """Turn the columns of reasons into codes; a text that is none of them stays as it stands."""
    for model, column in _REASON_COLUMNS:
        rows = _rows(apps, schema_editor, model)
        for code, phrase in REASONS.items():
            rows.filter(**{column: phrase}).update(**{column: code})


def speak_reasons(apps, schema_editor):
    """Turn codes into the words of the release before."""
    for model, column in _REASON_COLUMNS:
        rows = _rows(apps, schema_editor, model)
        for code, phrase in REASONS.items():
            rows.filter(**{column: code}).update(**{column: phrase})


def code_details(apps, schema_editor):
    """Turn the columns of sentences into JSON."""
    _change(
        apps,
        schema_editor,
        {
            ("Query", "phase_detail"): lambda row: coded(row.phase_detail, PHASES),
            ("Application", "hold_reason"): lambda row: coded(row.hold_reason, []),
            ("Operation", "detail"): lambda row: operation_coded(row.detail, row.verb, row.outcome),
            ("Transition", "detail"): lambda row: change_coded(row.detail, row.subject, row.reason),
        },
        before="",
        after="{}",
        written=json.dumps,
    )


def speak_details(apps, schema_editor):
    """Turn JSON into the sentences of the release before."""
    _change(
        apps,
        schema_editor,
        {
            ("Query", "phase_detail"): lambda row: spoken(json.loads(row.phase_detail)),
            ("Application", "hold_reason"): lambda row: spoken(json.loads(row.hold_reason)),
            ("Operation", "detail"): lambda row: spoken(json.loads(row.detail)),
            ("Transition", "detail"): lambda row: spoken(json.loads(row.detail)),
        },
        before="{}",
        after="",
        written=str,
    )


def _change(apps, schema_editor, forms, *, before, after, written):
    for (model, column), form in forms.items():
        rows = _rows(apps, schema_editor, model)
        rows.filter(**{column: before}).update(**{column: after})
        rows, last = rows.exclude(**{column: after}), 0
        while some := list(rows.filter(pk__gt=last).order_by("pk")[:500]):
            for row in some:
                setattr(row, column, written(form(row)))
            rows.bulk_update(some, [column])
            last = some[-1].pk


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0006_probe_of_an_operation"),
    ]

    operations = [
        migrations.RunPython(link_probes, unlink_probes),
        migrations.RunPython(code_reasons, speak_reasons),
        migrations.RunPython(code_details, speak_details),
    ]
