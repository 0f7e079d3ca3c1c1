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
from listeners.loops.troubles import each
from queries.brokers.options import Unusable, Wanted, client_options
from queries.brokers.reader import At, Ends, Readers, Unreachable
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.definitions import Query
from queries.secret_references import ReferenceMissing
from queries.selectors.hosts import looked_after
from queries.selectors.kafka.sources import Reading, readings, told_by_progress
from queries.services.kafka.lag_rows import (
    Answer,
    Brokers,
    Known,
    committed_of,
    is_known,
    write,
    write_told,
)
from queries.services.local_references import local_references
from queries.services.secrets.refusals import BrokerSecrets

logger = logging.getLogger(__name__)
_each = each("look at sources", logger)

BROKER_SETS_AT_ONCE = 8

#: One per process: connections stay open between passes.
READERS = Readers()


@dataclass(slots=True)
class _Asked:
    """One broker set, and everything that this pass queries from it."""

    brokers: Brokers
    wanted: set[Wanted] = field(default_factory=set)
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
    found = readings(query_ids, where=mine, each=_each.by_itself, passed_over=passed_over)
    if query_ids is None:
        theirs = {reading.query.pk for reading in found} | passed_over
        told = told_by_progress(theirs, where=mine, each=_each.by_itself)
        _forget_others(theirs | {one.query.pk for one in told})
        for one in told:
            with _each.by_itself(f"the reported lag of {one.query.name}"):
                write_told(one, now)
    known = _known([reading.query.pk for reading in found])
    waiting = {reading.query.pk: len(_sets(reading)) for reading in found}
    answers: dict[int, dict[Brokers, Answer]] = defaultdict(dict)
    for asked, answer in _answers(found, known, readers):
        for reading in asked.readings:
            answers[reading.query.pk][asked.brokers] = answer
            waiting[reading.query.pk] -= 1
            if not waiting[reading.query.pk]:
                with _each.by_itself(f"the lag of {reading.query.name}"):
                    write(reading, answers[reading.query.pk], known[reading.query.pk], now)
    readers.close_idle()
    return len(found)


# --- asking -----------------------------------------------------------------------------


def _sets(reading: Reading) -> set[Brokers]:
    return {source.brokers for source in reading.sources}


def _answers(
    found: Sequence[Reading], known: Mapping[int, Known], readers: Readers
) -> Iterator[tuple[_Asked, Answer]]:
    """Yield each reading's broker sets with their responses, or why they were not queried.

    A secret is sent only if it is bound to the query's application. Nothing is sent for a
    definition that was only saved: a broker is queried only if a run has read from it or an admin
    has allowed it.
    """
    secrets = BrokerSecrets()
    allowed: dict[int, set[Brokers]] = defaultdict(set)
    for reading in found:
        for brokers in _sets(reading):
            refused = secrets.refusal(
                brokers, reading.query.application.name, started=brokers in reading.started
            )
            if refused:
                yield _Asked(brokers, readings=[reading]), Answer(unusable=refused)
            else:
                allowed[reading.query.pk].add(brokers)
    yield from _ask(_by_brokers(found, allowed), known, readers)


def _by_brokers(found: Sequence[Reading], allowed: Mapping[int, set[Brokers]]) -> list[_Asked]:
    asked: dict[Brokers, _Asked] = {}
    for reading in found:
        for brokers in allowed.get(reading.query.pk, ()):
            one = asked.setdefault(brokers, _Asked(brokers))
            one.readings.append(reading)
            one.wanted |= {
                source.wanted
                for source in reading.sources
                if source.brokers == brokers and not source.error
            }
    return list(asked.values())


def _ask(
    sets: list[_Asked], known: Mapping[int, Known], readers: Readers
) -> Iterator[tuple[_Asked, Answer]]:
    """Yield each broker set with its response, as the responses arrive."""
    if not sets:
        return
    with ThreadPoolExecutor(BROKER_SETS_AT_ONCE, thread_name_prefix="brokers") as pool:
        futures: dict[Future[Answer], _Asked] = {
            pool.submit(_answer, one, known, readers): one for one in sets
        }
        for future in as_completed(futures):
            try:
                answer = future.result()
            except Exception as error:  # before it could ask: the others have answered
                about = ", ".join(sorted({one.query.name for one in futures[future].readings}))
                trouble = _each.meet(f"brokers of {about}", error)
                answer = Answer(unusable=mask_text(trouble.cause))
            yield futures[future], answer


def _answer(one: _Asked, known: Mapping[int, Known], readers: Readers) -> Answer:
    """Query one broker set; runs in its own thread and does not use the database."""
    references = local_references()
    options: dict[str, str] = {}

    def told(error: Exception) -> str:
        """Return an error's text with secrets masked."""
        references.learn(options)
        return references.mask(str(error))[:300]

    try:
        options = client_options(references.resolve_all(dict(one.brokers)))
        # A changed secret creates another reader; the old one is closed when idle.
        key = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
        return Answer(
            look=readers.look(
                key,
                options,
                one.wanted,
                records=lambda ends: _records_wanted(one.readings, ends, known),
            )
        )
    except Unreachable as error:
        return Answer(silent=told(error))
    except (Unusable, ReferenceMissing) as error:
        return Answer(unusable=told(error))
    except Exception as error:  # loop boundary: the others must still be queried
        logger.warning("could not contact a broker set: %s", type(error).__name__)
        return Answer(unusable=told(error) or type(error).__name__)


def _records_wanted(
    readings: Sequence[Reading],
    ends: Mapping[At, Ends],
    known: Mapping[int, Known],
) -> dict[At, int]:
    """Return, for each partition, the earliest offset whose record time is needed but unknown."""
    found: dict[At, int] = {}
    for reading in readings:
        for at, one in ends.items():
            committed = committed_of(reading, at)
            if committed is None or committed >= one.latest:
                continue
            first = max(committed, one.earliest)
            if one.stable is not None and first >= one.stable:
                continue  # part of an open transaction: not readable yet
            row = known[reading.query.pk].get(at)
            if row is not None and is_known(row, first):
                continue
            found[at] = min(first, found.get(at, first))
    return found


# --- stored rows -----------------------------------------------------------------------


def _known(query_ids: list[int]) -> dict[int, dict[At, SourceLag]]:
    found: dict[int, dict[At, SourceLag]] = {pk: {} for pk in query_ids}
    for row in SourceLag.objects.filter(query__in=query_ids).exclude(partition=TABLE):
        found[row.query_id][row.source, row.partition] = row
    return found


def _forget_others(reading: set[int]) -> None:
    """Delete the stored rows of this host's queries that are gone or no longer read Kafka."""
    topics = SourceLag.objects.exclude(partition=TABLE)
    if not topics.exists():
        return
    others = topics.filter(looked_after("query__application__"))
    others = others.exclude(query__in=reading)
    for pk in list(others.order_by().values_list("query_id", flat=True).distinct()):
        with _each.by_itself(f"the former lag of query number {pk}"):
            topics.filter(query=pk).delete()
            Query.objects.filter(pk=pk).update(
                risk="", risk_at=None, source_reachable=None, source_unreachable_since=None
            )
            changed(f"query:{pk}", f"lag:{pk}")
