"""Query Kafka repeatedly, during a run, about topics that are known only to the run's code.

For the sources in a definition, the control plane queries the brokers itself; the options of
sources in users' functions, including passwords, exist only in the driver.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queries.domain.kafka.topic_ids import changed, names
from queries.runtime.kafka.topics import KafkaSource, ids_of

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0


class TopicWatch:
    """The topics of one run, watched by a separate thread."""

    def __init__(
        self,
        sources: Sequence[KafkaSource],
        ids: Mapping[str, str],
        *,
        read: Callable[[], Sequence[str]],
        jvm: Any,
        report_ids: Callable[[dict[str, str]], None],
        warn: Callable[[str], None],
    ) -> None:
        """`ids` were seen at the start; `read` returns the topics in the checkpoint.

        `tell` is called with all IDs when one of them is new. The ID of a recreated topic counts as
        new only if the topic's source fails on data loss; otherwise, the query skips gaps and is
        not at risk.
        """
        self._ids = dict(ids)
        self._read = read
        self._jvm = jvm
        self._report_ids = report_ids
        self._warn = warn
        # With two sources, a topic's ID may come from the other's brokers, so each learns its own.
        self._earlier = [(source, dict(ids) if len(sources) == 1 else {}) for source in sources]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic-watch", daemon=True)

    def begin(self) -> None:
        """Start watching, if there are any topics to watch."""
        if self._earlier:
            self._thread.start()

    def end(self) -> None:
        """Stop watching; returns immediately."""
        self._over.set()

    def look(self) -> None:
        """Check the topics once; report recreated ones, and those seen for the first time."""
        before = dict(self._ids)
        read = self._read()
        for source, earlier in self._earlier:
            if self._over.is_set():
                return
            current = ids_of(self._jvm, source.client, source.topics(read))
            again = changed({topic: [topic_id] for topic, topic_id in earlier.items()}, current)
            earlier |= current
            self._ids = current | self._ids
            if again:
                self._warn(
                    f"{names(again)} deleted and recreated while it was read: the remaining "
                    "records of the old topic were not read, and neither are records of the "
                    "new one before the query's offsets."
                )
                if source.fails_on_loss:
                    self._ids |= {topic: current[topic] for topic in again}
        if self._ids != before and not self._over.is_set():
            self._report_ids(dict(self._ids))

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception as error:  # the next check may succeed
                logger.info("could not check the topics: %s", type(error).__name__)
