"""One Spark session per query, reused when the query restarts.

Two queries must not see each other's views and configuration, and each session that streams leaves
a bus on Spark's listener queue until that bus is removed. So a session is created once per query,
reused, and closed when the query has not run here for a while.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from listeners.spark.telemetry import ListenerRefused, Telemetry
from queries.runtime.build import CONFIGURATION, session_conf, views
from queries.runtime.failures.error_capture import StepFailed
from queries.secret_references import References

KEEP_S = 600  # seconds: a query that returns within this time finds its session


@dataclass(slots=True)
class _OpenSession:
    session: Any
    views: set[str] = field(default_factory=set)
    conf: set[str] = field(default_factory=set)
    used_at: float = field(default_factory=time.monotonic)


class Sessions:
    """The sessions of one driver, by query."""

    def __init__(
        self, spark: Any, telemetry: Telemetry, listeners: tuple[str, ...], references: References
    ) -> None:
        self._spark = spark
        self._telemetry = telemetry
        self._listeners = listeners
        self._references = references
        self._lock = threading.Lock()
        self._open_sessions: dict[int, _OpenSession] = {}

    def open(self, query: int, spec: dict[str, Any]) -> Any:
        """Return the query's session, with only the definition's configuration and views.

        It becomes the active session of the calling thread.
        """
        entry = self._get(query)
        session = entry.session
        for name in entry.views - views(spec):
            session.catalog.dropTempView(name)
        conf = session_conf(spec, self._references)
        for name in entry.conf - conf.keys():
            session.conf.unset(name)
        for name, value in conf.items():
            session.conf.set(name, value)
        entry.views, entry.conf, entry.used_at = views(spec), set(conf), time.monotonic()
        java = session._jsparkSession
        session._get_j_spark_session_class(session._jvm).setActiveSession(java)
        return session

    def close_unused(self, hosted: set[int]) -> None:
        """Close sessions of queries that have not run in this driver for a while."""
        now = time.monotonic()
        with self._lock:
            for query in hosted & self._open_sessions.keys():
                self._open_sessions[query].used_at = now
            unused = [
                query
                for query, entry in self._open_sessions.items()
                if now - entry.used_at > KEEP_S
            ]
            closed = [self._open_sessions.pop(query) for query in unused]
        for entry in closed:
            self._telemetry.session_closed(entry.session)

    def _get(self, query: int) -> _OpenSession:
        with self._lock:
            entry = self._open_sessions.get(query)
        if entry is None:
            session = self._spark.newSession()
            try:
                self._telemetry.session_opened(session, self._listeners)
            except ListenerRefused as error:
                raise StepFailed("listeners", error, error_class=CONFIGURATION) from error
            entry = _OpenSession(session)
            with self._lock:
                self._open_sessions[query] = entry
        return entry
