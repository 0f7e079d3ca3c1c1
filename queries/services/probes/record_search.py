"""Look at a batch's records in a probe driver, and find the one on which its SQL fails.

Records are personal data: like the rows of an X-ray, they never reach the database, are shown to
authors for an hour, and are then removed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from listeners.models import Progress
from queries.checkpoints import batches, source_logs
from queries.domain.definitions.data_roots import fixed_part
from queries.domain.definitions.locations import NotALocation
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.kafka.offset_ranges import OffsetRange
from queries.domain.kafka.offsets import EARLIEST
from queries.domain.probes.hot_keys import keys_sql
from queries.domain.probes.questions import BatchRead, RecordsTask
from queries.domain.states import Verb
from queries.launchers.base import Launcher
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.newest import newest_revisions
from queries.services.checkpoints.remote import fresh_logs
from queries.services.probes import probe_steps
from queries.services.probes.probe_steps import LIMIT, ROWS, rows_problems
from queries.services.procedures.engine import DONE, Procedure, Step, StepContext, StepResult, begin

PROBE_LIMIT_S = 150.0
SEARCH_S = 60.0
LOOKED_AT = 10_000  # records per source
SAMPLED = 100_000  # rows among which keys are counted


def begin_records(
    *, query: Query, batch: int, actor: str, now: datetime, rows: int = ROWS
) -> Operation:
    """Look at a batch's records; raise `Invalid`, or `NotAllowed` if they cannot be read."""
    problems = []
    if batch < 0:
        problems.append(Problem("batch", str(batch), "is not a valid batch number."))
    problems += rows_problems(rows)
    if problems:
        raise Invalid(problems)
    _require_sources(_spec(query))
    return begin(
        PROCEDURE, query=query, arguments={"batch": batch, "rows": rows}, actor=actor, now=now
    )


def records_can_be_read(query: Query) -> bool:
    """Return whether the last run's definition declares its sources, so a probe can read them."""
    return _spec(query).get("kind") == "sql"


def records_of(operation: Operation, *, launcher: Launcher, now: datetime) -> dict[str, Any] | None:
    """Return the records that the probe found; None once they are removed."""
    found = probe_steps.shown(operation, launcher=launcher, now=now)
    return found.records if found else None


def reads_of(
    spec: Mapping[str, Any],
    ranges: Iterable[OffsetRange],
    files: Iterable[str],
    *,
    began: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> list[BatchRead]:
    """Return the part that a batch read of each source in the definition; others are omitted.

    `began` contains the offsets at which each source in the log began.
    """
    start: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
    end: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
    for one in ranges:
        for source in kafka_sources(spec):
            if source.wanted.matches(one.topic):
                start[source.name][one.topic][str(one.partition)] = _start(one, began)
                end[source.name][one.topic][str(one.partition)] = one.end
                break
    reads = [BatchRead(name, start=start[name], end=end[name]) for name in start]
    found = defaultdict(list)
    roots = _folders(spec)
    for path in files:
        place = fixed_part(path)
        for name, folder in roots.items():
            if f"{place}/".startswith(f"{folder}/"):
                found[name].append(path)
                break
    return reads + [BatchRead(name, files=tuple(held)) for name, held in found.items()]


def _start(one: OffsetRange, began: Mapping[str, Mapping[str, Mapping[str, int]]]) -> int:
    """Return where the read of a partition began: if it was added later, at its first offset."""
    if one.start is not None:
        return one.start
    return began.get(one.source, {}).get(one.topic, {}).get(str(one.partition), EARLIEST)


def _folders(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return each file source's folder, by source name."""
    found = {}
    for source in spec.get("sources") or ():
        for key, value in (source.get("options") or {}).items():
            if key.lower() == "path":
                try:
                    found[source["name"]] = fixed_part(value)
                except NotALocation:
                    continue
    return found


def _spec(query: Query) -> dict[str, Any]:
    """Return the definition that ran last, with its values for parameters; or else the newest."""
    run = query.runs.order_by("-pk").select_related("revision").first()
    revision = run.revision if run else newest_revisions([query.pk])[query.pk]
    given = (run.params if run else None) or {}
    return {**revision.spec, "params": {**(revision.spec.get("params") or {}), **given}}


def _require_sources(spec: Mapping[str, Any]) -> None:
    if spec.get("kind") != "sql":
        raise NotAllowed(
            "Its sources are defined in Python, so Headgate cannot read the records of a batch.",
            way_out="Read the files or offsets listed on the batch's page.",
        )


# --- the steps ------------------------------------------------------------------------


def _find(turn: StepContext) -> StepResult:
    checkpoint = probe_steps.checkpoint_of(turn)
    logs = fresh_logs(turn, checkpoint.location)
    if isinstance(logs, StepResult):
        return logs
    number, spec = turn.arguments["batch"], _spec(turn.query)
    found = batches.one(logs, number)
    if found is None:
        raise NotAllowed(f"The checkpoint does not contain batch {number}.")
    files = [one.path for one in batches.files_of(logs, number)]
    began = {
        one.source: source_logs.first_offsets(logs.root / "sources" / one.source)
        for one in found.ranges
        if one.start is None
    }
    reads = reads_of(spec, found.ranges, files, began=began)
    if not reads and batches.read_nothing(logs, number):
        raise NotAllowed(
            f"Batch {number} read no new records: Spark ran it to advance the watermark.",
            way_out="Check the preceding batches: their records are in its state.",
        )
    if not reads:
        raise NotAllowed(
            f"The log does not show what batch {number} read: its sources keep no log, or the "
            "preceding entry was purged.",
        )
    turn.result["reads"] = [
        {"source": one.source, "files": one.files, "start": one.start, "end": one.end}
        for one in reads
    ]
    return StepResult(True, f"{len(reads)} of {len(spec['sources'])} sources")


def _launch(turn: StepContext) -> StepResult:
    spec, batch = _spec(turn.query), turn.arguments["batch"]
    progress = Progress.objects.filter(query=turn.query.pk, batch=batch).order_by("-pk").first()
    task = RecordsTask(
        spec=spec,
        reads=tuple(
            BatchRead(one["source"], tuple(one["files"]), one["start"], one["end"])
            for one in turn.result["reads"]
        ),
        rows=turn.arguments["rows"],
        looked_at=LOOKED_AT,
        limit_s=PROBE_LIMIT_S,
        search_s=SEARCH_S,
        keys_sql=keys_sql(spec["sql"]),
        sampled=SAMPLED,
        batch_rows=progress.num_input_rows if progress else 0,
    )
    return probe_steps.launch(turn, lambda _: task)


def _read(turn: StepContext) -> StepResult:
    answer = probe_steps.await_read(turn, "records", "The records")
    if isinstance(answer, StepResult):
        return answer
    assert answer.records is not None
    failing = answer.records["failing"]
    turn.result |= {
        "looked_at": {one["source"]: one["looked_at"] for one in answer.records["sources"]},
        "searched": answer.records["searched"],
        "failing": {name: failing[name] for name in ("source", "record")} if failing else None,
        "took_ms": answer.took_ms,
    }
    return DONE


PROCEDURE = Procedure(
    Verb.RECORDS,
    (
        Step("Find out what the batch read", _find),
        Step("Wait for a slot on the host", probe_steps.take_place),
        Step("Launch a probe driver", _launch),
        Step("Read the records", _read),
        Step("End the probe driver", probe_steps.put_away),
    ),
    limit=LIMIT,
    undo=probe_steps.forget,
)
