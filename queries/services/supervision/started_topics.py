"""Remember which topics a driver has seen as it started a run: the first word on a new query.

The looks at the brokers (`services.kafka`) come every few seconds, and know no topic of a source
that only the query's code knows.
"""

from collections.abc import Mapping

from queries.domain.kafka.topic_ids import Remembered, as_json, ids_of
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.selectors.kafka.sources import kafka_sources


def note_start(run: Run, seen: Mapping[str, str]) -> None:
    """Remember the topics that a driver has seen as it started a run, where none are remembered.

    Of sources that only the query's code knows this is the only word.
    """
    row = Checkpoint.objects.select_for_update().get(pk=run.checkpoint_id)
    ids, known = ids_of(row.topic_ids), ids_of(row.topic_ids)
    sources = kafka_sources(run.revision.spec)
    for topic, one in seen.items():
        names = [source.name for source in sources if source.wanted.matches(topic)] or [""]
        for name in names:
            ids.setdefault(name, {}).setdefault(topic, Remembered(one))
            if name == "" and ids[name][topic].id != one:
                # It was started all the same: its code reads with failOnDataLoss=false.
                ids[name][topic] = Remembered(one, (run.last_batch or 0) + 1)
    if ids != known:
        Checkpoint.objects.filter(pk=row.pk).update(topic_ids=as_json(ids))
