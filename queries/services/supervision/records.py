"""Record what supervision has noticed: the topics that a run began with, and changed verdicts.

For a new query, this is the first information about its topics, because passes over the brokers
(`services.kafka`) run only every few seconds. For a source known only to the query's code, it is
the only information.

A verdict is computed when it is read, because it can change merely as time passes. Only a regular
task can determine since when it has held: only this task writes `verdict` and `verdict_since`.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from django.db.models import Q

from controlplane.nudge import changed
from listeners.loops.backlogs import loop_errors
from queries.domain.kafka.topic_ids import Ids, Remembered, as_json, ids_of
from queries.domain.states import JUDGED_PHASES, RunOutcome
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.supervision.health import healths


def note_start(run: Run, driver_topics: Mapping[str, str]) -> None:
    """Store the topics that a driver saw when it started a run, if none are stored.

    For sources known only to the query's code, this is the only information.
    """
    row = Checkpoint.objects.select_for_update().get(pk=run.checkpoint_id)
    ids, before = ids_of(row.topic_ids), ids_of(row.topic_ids)
    sources = kafka_sources(run.revision.spec)
    for topic, topic_id in driver_topics.items():
        names = [source.name for source in sources if source.wanted.matches(topic)] or [""]
        for name in names:
            ids.setdefault(name, {}).setdefault(topic, Remembered(topic_id))
            if name == "" and ids[name][topic].id != topic_id:
                # It started nevertheless: its code reads with failOnDataLoss=false.
                ids[name][topic] = Remembered(topic_id, (run.last_batch or 0) + 1)
    if ids != before:
        Checkpoint.objects.filter(pk=row.pk).update(topic_ids=as_json(ids))


def note_look(run: Run, driver_topics: Mapping[str, str]) -> None:
    """Store changes in the topics that a driver sees while a run continues.

    This applies only to sources known only to the query's code; passes over the brokers check the
    others. A recreated topic is stored next to the one whose offsets the checkpoint contains.
    """
    sources = kafka_sources(run.revision.spec)
    own = {
        topic: topic_id
        for topic, topic_id in driver_topics.items()
        if not any(source.wanted.matches(topic) for source in sources)
    }
    if not _news(ids_of(run.checkpoint.topic_ids), own):
        return
    row = Checkpoint.objects.select_for_update().get(pk=run.checkpoint_id)
    ids = ids_of(row.topic_ids)
    for topic, topic_id in _news(ids, own).items():
        topic_identity = ids.setdefault("", {}).get(topic)
        ids[""][topic] = (
            Remembered(topic_id)
            if topic_identity is None
            else replace(topic_identity, now=topic_id, passed=None)
        )
    Checkpoint.objects.filter(pk=row.pk).update(topic_ids=as_json(ids))


def _news(ids: Ids, driver_topics: Mapping[str, str]) -> dict[str, str]:
    by_topic = ids.get("", {})
    return {
        topic: topic_id
        for topic, topic_id in driver_topics.items()
        if topic not in by_topic or topic_id not in (by_topic[topic].id, by_topic[topic].now)
    }


logger = logging.getLogger(__name__)
_loop = loop_errors("verdicts", logger)


def note_verdicts(*, now: datetime) -> int:
    """Write the verdicts that have changed, each with the time; return how many."""
    rows = Query.objects.filter(Q(phase__in=sorted(JUDGED_PHASES)) | ~Q(verdict=""))
    queries = {query.pk: query for query in rows.select_related("application").order_by()}
    runs = {
        run.query_id: run
        for run in Run.objects.filter(outcome=RunOutcome.OPEN).select_related(
            "revision", "checkpoint", "driver"
        )
    }
    judged = healths([query for pk, query in queries.items() if pk in runs], runs, now=now)
    count = 0
    for pk, query in queries.items():
        verdict = str(judged[pk].verdict) if pk in judged else ""
        with _loop.isolate_errors(f"query {query.name}"):
            count += _note(query, verdict, now)
    return count


def _note(query: Query, verdict: str, now: datetime) -> int:
    if verdict == query.verdict:
        return 0
    # Compare-and-set: of two concurrent passes, the one that read the older row does nothing.
    since = now if verdict else None
    rows = Query.objects.filter(pk=query.pk, verdict=query.verdict)
    wrote = rows.update(verdict=verdict, verdict_since=since)
    if wrote:
        changed(f"query:{query.pk}")
    return wrote
