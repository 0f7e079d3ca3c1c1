"""Wake supervision and pages after a commit; a lost nudge causes a delay of only seconds.

Services and the ingester specify *what changed*, not who responds to it. If a nudge is lost, the
sweep (`queries.ticks.sweep`) finds the change.

Nudges wait in a sorted set next to each Celery queue, so a row waits there once, however often it
changes. A worker takes a row out of the set before it begins; a change after that adds the row
again. The message in the queue only wakes a thread: it does not name a row, and there are never
more of them than rows, unless other tasks wait in that queue.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis
from django.conf import settings
from django.db import transaction

from controlplane import hosts
from controlplane.celery import app
from controlplane.servers import connection

logger = logging.getLogger(__name__)

#: Seconds without another attempt after Redis timed out. Otherwise, every nudge of a reconcile
#: would wait just as long, and supervision would stall.
LEFT_ALONE_S = 10
_left_alone_until = 0.0  # monotonic


@contextmanager
def _redis() -> Iterator[redis.Redis]:
    """Yield the connection; raise `redis.TimeoutError` at once during a pause after a timeout."""
    global _left_alone_until
    if time.monotonic() < _left_alone_until:
        raise redis.TimeoutError("Redis did not respond a moment ago")
    try:
        yield connection()
    except redis.TimeoutError:
        _left_alone_until = time.monotonic() + LEFT_ALONE_S
        raise


def reconcile_soon(application_id: int) -> None:
    """Request a reconcile of the application once the current transaction has committed."""
    _send_soon("queries.tasks.reconcile_application", "application", application_id)


def reconcile_driver_soon(driver_id: int) -> None:
    """Request a reconcile of the driver's application once the transaction has committed."""
    _send_soon("queries.tasks.reconcile_driver", "driver", driver_id)


def advance_soon(operation_id: int) -> None:
    """Request the next step of an operation once the transaction has committed."""
    _send_soon("queries.tasks.advance_operation", "operation", operation_id)


def _send_soon(task: str, kind: str, row_id: int) -> None:
    transaction.on_commit(lambda: _send(task, lambda: hosts.queue_of(kind, row_id), row_id))


def advance_deploys_soon() -> None:
    """Request the next steps of deploys, from any worker, once the transaction has committed."""
    transaction.on_commit(lambda: _send("queries.tasks.advance_deploys", lambda: settings.QUEUE))


def read_checkpoint_soon(checkpoint_id: int) -> None:
    """Ask this host's worker to read a checkpoint that is not on a local disk; at once."""
    _send("queries.tasks.read_checkpoint", lambda: settings.HOST_QUEUE, checkpoint_id)


def read_snapshot_soon(snapshot_id: int) -> None:
    """Ask this host's worker to read a snapshot that is not on a local disk; at once."""
    _send("queries.tasks.read_snapshot", lambda: settings.HOST_QUEUE, snapshot_id)


def read_sink_soon(query_id: int) -> None:
    """Make this host's worker read the log of a query's file sink on remote storage now."""
    _send("queries.tasks.read_sink", lambda: settings.HOST_QUEUE, query_id)


def look_at_tables_soon(query_id: int, host: str) -> None:
    """Ask a host's worker ("": this host's) to read the logs of a query's tables now."""
    queue = f"{settings.QUEUE}.{host}" if host else settings.HOST_QUEUE
    _send("queries.tasks.read_tables", lambda: queue, query_id)


def _send(task: str, queue_of: Callable[[], str], *row: int) -> None:
    """Add a nudge; ignore errors: a tick finds the row, or the page polls again."""
    try:
        _put(task, row, queue_of())
    except Exception as error:  # the broker is down
        logger.warning("nudge %s%s not sent: %s", task, row, error)


def _put(task: str, row: tuple[int, ...], queue: str) -> None:
    """Add a nudge, unless the row is waiting, and wake a thread unless enough are being woken.

    The lengths are compared, because a killed worker loses the messages that it had taken: the next
    nudge, of whichever row, replaces them. This is done with our own client: if Redis is not
    running, it fails immediately, whereas Celery would retry for six seconds in the middle of a
    request.
    """
    prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
    with _redis() as client, client.pipeline(transaction=False) as pipeline:
        pipeline.zadd(waiting_key(queue), {json.dumps([task, *row]): time.time()}, nx=True)
        pipeline.zcard(waiting_key(queue))
        pipeline.llen(f"{prefix}{queue}")
        _, rows, messages = pipeline.execute()
    if messages < rows:
        app.send_task("queries.tasks.take_nudges", args=[queue], queue=queue, retry=False)


def take_nudges(queue: str) -> Iterator[tuple[str, list[int]]]:
    """Take nudges out of a queue, the oldest first; yield each task's name and arguments."""
    while True:
        try:
            nudges: Any = connection().zpopmin(waiting_key(queue))
        except redis.RedisError as error:  # Celery connects again, and ticks find the rows
            logger.warning("no nudges taken: %s", error)
            return
        if not nudges:
            return
        [(nudge, _)] = nudges
        task, *args = json.loads(nudge)
        yield task, args


def waiting_key(queue: str) -> str:
    """Return the sorted set in which the nudges of a queue wait, by the time they were added."""
    return f"{queue}:nudges"


def changed(*topics: str) -> None:
    """Notify open pages, after the commit, that topics such as "query:42" have changed."""
    transaction.on_commit(lambda: _publish(topics))


def _publish(topics: tuple[str, ...]) -> None:
    try:
        with _redis() as client, client.pipeline(transaction=False) as pipeline:
            for topic in topics:
                pipeline.publish(settings.CHANGED_CHANNEL, topic)
            pipeline.execute()
    except redis.RedisError as error:  # pages reload by themselves after a while
        logger.warning("change of %s not published: %s", ", ".join(topics), error)
