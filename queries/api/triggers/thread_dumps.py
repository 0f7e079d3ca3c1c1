"""Thread dumps of a query's driver over REST."""

from rest_framework import serializers

from listeners.models import Event
from queries.api.base import ApiView
from queries.api.derived import Body, serializer_for
from queries.api.methods import Nothing, answers
from queries.roles import OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.triggers.thread_dumps import Dumps, thread_dumps
from queries.services.triggers.thread_dumps import request_dump


@serializer_for(Event, "run at quiet_s threads heap")
class ThreadDumpBody(Body):
    """What the JVM of a query's driver was doing at one moment.

    run: The run for which it was taken.
    at: When it was taken.
    quiet_s: Seconds since the run's last sign of progress.
    threads: The threads, as the JVM prints them.
    heap: The classes that take most of the heap.
    """

    quiet_s = serializers.IntegerField(source="body.quiet_s")
    threads = serializers.CharField(source="body.threads")
    heap = serializers.CharField(source="body.heap")


@serializer_for(Dumps, "newest asked_at overdue")
class ThreadDumpsBody(Body):
    """The newest thread dump of the last day, and whether another one has been requested.

    newest: Null if none was taken.
    asked_at: When the one was requested that has not been taken yet; null if there is none.
    overdue: Whether the driver has not answered that request for a minute.
    """

    newest = ThreadDumpBody(allow_null=True)


class QueryThreadDumpView(ApiView):
    """Thread dumps of the driver that runs a query."""

    @answers("get_query_thread_dump", ThreadDumpsBody)
    def get(self, name: str) -> Dumps:
        """Return the newest thread dump: taken on request, or because the query hung."""
        return thread_dumps(definitions.query(name), now=self.now)

    @answers("request_query_thread_dump", ThreadDumpsBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> Dumps:
        """Have the driver take a thread dump with its next heartbeat; read it with GET."""
        query = definitions.query(name)
        request_dump(query=query, **self.by)
        return thread_dumps(query, now=self.now)
