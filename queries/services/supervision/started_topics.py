"""Store the topics that a driver sees when it starts a run and while the run continues.

For a new query, this is the first information about its topics, because passes over the brokers
(`services.kafka`) run only every few seconds. For a source known only to the query's code, it is
the only information.
"""

from collections.abc import Mapping
from dataclasses import replace

from queries.domain.kafka.topic_ids import Ids, Remembered, as_json, ids_of
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.selectors.kafka.sources import kafka_sources


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
        remembered = ids.setdefault("", {}).get(topic)
        ids[""][topic] = (
            Remembered(topic_id)
            if remembered is None
            else replace(remembered, now=topic_id, passed=None)
        )
    Checkpoint.objects.filter(pk=row.pk).update(topic_ids=as_json(ids))


def _news(ids: Ids, driver_topics: Mapping[str, str]) -> dict[str, str]:
    remembered = ids.get("", {})
    return {
        topic: topic_id
        for topic, topic_id in driver_topics.items()
        if topic not in remembered or topic_id not in (remembered[topic].id, remembered[topic].now)
    }
