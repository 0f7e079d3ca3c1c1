"""Query the brokers of every existing query, and store the results.

Only this task writes `SourceLag` and a query's `risk`, `risk_at`, `source_reachable` and
`source_unreachable_since` (docs/decisions). Each broker set is queried once per pass. All sets are
queried in parallel, each with its own time limit, and rows are written as responses arrive.
"""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.nudge import changed
from headgate_ground.masking import mask_text
from listeners.loops.backlogs import loop_errors
from queries.brokers.options import TopicSelection, Unusable, client_options
from queries.brokers.reader import At, PartitionEnds, Readers, Unreachable
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.definitions import Query
from queries.secret_references import ReferenceMissing
from queries.selectors.hosts import looked_after
from queries.selectors.kafka.sources import Reading, offsets_in_progress, readings
from queries.services.kafka.lag_rows import (
    BrokerAnswer,
    Brokers,
    StoredLags,
    committed_of,
    has_record_time,
    write,
    write_reported,
)
from queries.services.local_roots import local_references
from queries.services.secrets import BrokerSecrets

logger = logging.getLogger(__name__)
_loop = loop_errors("look at sources", logger)

BROKER_SETS_AT_ONCE = 8

#: One per process: connections stay open between passes.
READERS = Readers()


@dataclass(slots=True)
class _BrokerSet:
    """One broker set, and everything that this pass queries from it."""

    brokers: Brokers
    wanted: set[TopicSelection] = field(default_factory=set)
    readings: list[Reading] = field(default_factory=list)


def look_at_sources(
    *, now: datetime, readers: Readers = READERS, query_ids: Sequence[int] | None = None
) -> int:
    """Query every broker set once and store the results; return how many queries read Kafka.

    Covers the queries of this host, whose checkpoints contain the committed offsets; queries
    without a host are covered by one of the live hosts. If given, `query_ids` selects the queries
    instead.
    """
    mine = looked_after("application__") if query_ids is None else None
    passed_over: set[int] = set()  # their stored rows stay
    kafka_readings = readings(
        query_ids, where=mine, isolate=_loop.isolate_errors, passed_over=passed_over
    )
    if query_ids is None:
        theirs = {reading.query.pk for reading in kafka_readings} | passed_over
        reports = offsets_in_progress(theirs, where=mine, isolate=_loop.isolate_errors)
        _forget_others(theirs | {report.query.pk for report in reports})
        for report in reports:
            with _loop.isolate_errors(f"the reported lag of {report.query.name}"):
                write_reported(report, now)
    stored_lags = _stored_lags([reading.query.pk for reading in kafka_readings])
    waiting = {reading.query.pk: len(_sets(reading)) for reading in kafka_readings}
    answers: dict[int, dict[Brokers, BrokerAnswer]] = defaultdict(dict)
    for broker_set, answer in _answers(kafka_readings, stored_lags, readers):
        for reading in broker_set.readings:
            answers[reading.query.pk][broker_set.brokers] = answer
            waiting[reading.query.pk] -= 1
            if not waiting[reading.query.pk]:
                with _loop.isolate_errors(f"the lag of {reading.query.name}"):
                    write(reading, answers[reading.query.pk], stored_lags[reading.query.pk], now)
    readers.close_idle()
    return len(kafka_readings)


# --- asking -----------------------------------------------------------------------------


def _sets(reading: Reading) -> set[Brokers]:
    return {source.brokers for source in reading.sources}


def _answers(
    kafka_readings: Sequence[Reading], stored_lags: Mapping[int, StoredLags], readers: Readers
) -> Iterator[tuple[_BrokerSet, BrokerAnswer]]:
    """Yield each reading's broker sets with their responses, or why they were not queried.

    A secret is sent only if it is bound to the query's application. Nothing is sent for a
    definition that was only saved: a broker is queried only if a run has read from it or an admin
    has allowed it.
    """
    secrets = BrokerSecrets()
    allowed: dict[int, set[Brokers]] = defaultdict(set)
    for reading in kafka_readings:
        for brokers in _sets(reading):
            refused = secrets.refusal(
                brokers, reading.query.application.name, started=brokers in reading.started
            )
            if refused:
                yield _BrokerSet(brokers, readings=[reading]), BrokerAnswer(unusable=refused)
            else:
                allowed[reading.query.pk].add(brokers)
    yield from _query_brokers(_by_brokers(kafka_readings, allowed), stored_lags, readers)


def _by_brokers(
    kafka_readings: Sequence[Reading], allowed: Mapping[int, set[Brokers]]
) -> list[_BrokerSet]:
    broker_sets: dict[Brokers, _BrokerSet] = {}
    for reading in kafka_readings:
        for brokers in allowed.get(reading.query.pk, ()):
            broker_set = broker_sets.setdefault(brokers, _BrokerSet(brokers))
            broker_set.readings.append(reading)
            broker_set.wanted |= {
                source.wanted
                for source in reading.sources
                if source.brokers == brokers and not source.error
            }
    return list(broker_sets.values())


def _query_brokers(
    sets: list[_BrokerSet], stored_lags: Mapping[int, StoredLags], readers: Readers
) -> Iterator[tuple[_BrokerSet, BrokerAnswer]]:
    """Yield each broker set with its response, as the responses arrive."""
    if not sets:
        return
    with ThreadPoolExecutor(BROKER_SETS_AT_ONCE, thread_name_prefix="brokers") as pool:
        futures: dict[Future[BrokerAnswer], _BrokerSet] = {
            pool.submit(_answer, broker_set, stored_lags, readers): broker_set
            for broker_set in sets
        }
        for future in as_completed(futures):
            try:
                answer = future.result()
            except Exception as error:  # before it could ask: the others have answered
                about = ", ".join(
                    sorted({reading.query.name for reading in futures[future].readings})
                )
                trouble = _loop.record_error(f"brokers of {about}", error)
                answer = BrokerAnswer(unusable=mask_text(trouble.cause))
            yield futures[future], answer


def _answer(
    broker_set: _BrokerSet, stored_lags: Mapping[int, StoredLags], readers: Readers
) -> BrokerAnswer:
    """Query one broker set; runs in its own thread and does not use the database."""
    references = local_references()
    options: dict[str, str] = {}

    def error_text(error: Exception) -> str:
        """Return an error's message with secrets masked."""
        references.learn(options)
        return references.mask(str(error))[:300]

    try:
        options = client_options(references.resolve_all(dict(broker_set.brokers)))
        # A changed secret creates another reader; the old one is closed when idle.
        key = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
        return BrokerAnswer(
            look=readers.look(
                key,
                options,
                broker_set.wanted,
                records=lambda ends: _records_wanted(broker_set.readings, ends, stored_lags),
            )
        )
    except Unreachable as error:
        return BrokerAnswer(silent=error_text(error))
    except (Unusable, ReferenceMissing) as error:
        return BrokerAnswer(unusable=error_text(error))
    except Exception as error:  # loop boundary: the others must still be queried
        logger.warning("could not contact a broker set: %s", type(error).__name__)
        return BrokerAnswer(unusable=error_text(error) or type(error).__name__)


def _records_wanted(
    readings: Sequence[Reading],
    ends: Mapping[At, PartitionEnds],
    stored_lags: Mapping[int, StoredLags],
) -> dict[At, int]:
    """Return, for each partition, the earliest offset whose record time is needed but unknown."""
    wanted_offsets: dict[At, int] = {}
    for reading in readings:
        for at, partition_ends in ends.items():
            committed = committed_of(reading, at)
            if committed is None or committed >= partition_ends.latest:
                continue
            first = max(committed, partition_ends.earliest)
            if partition_ends.stable is not None and first >= partition_ends.stable:
                continue  # part of an open transaction: not readable yet
            row = stored_lags[reading.query.pk].get(at)
            if row is not None and has_record_time(row, first):
                continue
            wanted_offsets[at] = min(first, wanted_offsets.get(at, first))
    return wanted_offsets


# --- stored rows -----------------------------------------------------------------------


def _stored_lags(query_ids: list[int]) -> dict[int, dict[At, SourceLag]]:
    lags_by_query: dict[int, dict[At, SourceLag]] = {pk: {} for pk in query_ids}
    for row in SourceLag.objects.filter(query__in=query_ids).exclude(partition=TABLE):
        lags_by_query[row.query_id][row.source, row.partition] = row
    return lags_by_query


def _forget_others(reading: set[int]) -> None:
    """Delete the stored rows of this host's queries that are gone or no longer read Kafka."""
    topics = SourceLag.objects.exclude(partition=TABLE)
    if not topics.exists():
        return
    others = topics.filter(looked_after("query__application__"))
    others = others.exclude(query__in=reading)
    for pk in list(others.order_by().values_list("query_id", flat=True).distinct()):
        with _loop.isolate_errors(f"the former lag of query number {pk}"):
            topics.filter(query=pk).delete()
            Query.objects.filter(pk=pk).update(
                risk="", risk_at=None, source_reachable=None, source_unreachable_since=None
            )
            changed(f"query:{pk}", f"lag:{pk}")
