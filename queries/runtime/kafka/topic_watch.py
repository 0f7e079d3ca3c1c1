"""Ask Kafka again and again, while a run goes on, for the topics that only its code knows.

Of the sources in a definition the control plane asks the brokers itself; those of users' functions
have their options, passwords among them, in the driver alone.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from queries.domain.kafka.topic_ids import changed, names
from queries.runtime.kafka.topics import Source, ids_of

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0


class TopicWatch:
    """The topics of one run, looked at by a thread of its own."""

    def __init__(
        self,
        sources: Sequence[Source],
        ids: Mapping[str, str],
        *,
        read: Callable[[], Sequence[str]],
        jvm: Any,
        tell: Callable[[dict[str, str]], None],
        warn: Callable[[str], None],
    ) -> None:
        """`ids` were seen at the start; `read` returns the topics that the checkpoint has.

        `tell` is given all ids once one is new, a topic's that was created again only where its
        source fails on data loss: a query that is to go over gaps is at no risk.
        """
        self._ids = dict(ids)
        self._read = read
        self._jvm = jvm
        self._tell = tell
        self._warn = warn
        # Of two sources a topic's id may be that of the other's brokers: each learns its own.
        self._known = [(one, dict(ids) if len(sources) == 1 else {}) for one in sources]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic-watch", daemon=True)

    def begin(self) -> None:
        """Begin to look, where there is something to look at."""
        if self._known:
            self._thread.start()

    def end(self) -> None:
        """Look no more; returns at once."""
        self._over.set()

    def look(self) -> None:
        """Look once; say what was created again, and what is seen for the first time."""
        before = dict(self._ids)
        read = self._read()
        for source, known in self._known:
            if self._over.is_set():
                return
            told = ids_of(self._jvm, source.client, source.topics(read))
            again = changed({topic: [one] for topic, one in known.items()}, told)
            known |= told
            self._ids = told | self._ids
            if again:
                self._warn(
                    f"{names(again)} deleted and created again while it was read: what the old one "
                    "still held was not read, nor is what the new one has before the query's "
                    "offsets."
                )
                if source.fails_on_loss:
                    self._ids |= {topic: told[topic] for topic in again}
        if self._ids != before and not self._over.is_set():
            self._tell(dict(self._ids))

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception as error:  # the next look may do better
                logger.info("the topics cannot be looked at: %s", type(error).__name__)
