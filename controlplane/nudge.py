"""Wake supervision and pages after a commit; a lost nudge causes a delay of only seconds.

Services and the ingester specify *what changed*, not who acts on it. If a nudge is lost, the sweep
(`queries.tasks.sweep`) finds the change.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from django.conf import settings
from django.db import transaction

from controlplane import hosts
from controlplane.celery import app
from controlplane.redis_client import connection

logger = logging.getLogger(__name__)

#: Lifetime of a nudge in seconds: after that, the sweep has done its work.
NUDGE_EXPIRES_S = 60
#: Most tasks in a queue; a worker takes thousands a second.
MOST_WAITING = 10_000
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
    task = "queries.tasks.reconcile_application"
    transaction.on_commit(lambda: _send(task, "application", application_id))


def reconcile_driver_soon(driver_id: int) -> None:
    """Request a reconcile of the driver's application once the transaction has committed."""
    transaction.on_commit(lambda: _send("queries.tasks.reconcile_driver", "driver", driver_id))


def advance_soon(operation_id: int) -> None:
    """Request the next step of an operation once the transaction has committed."""
    task = "queries.tasks.advance_operation"
    transaction.on_commit(lambda: _send(task, "operation", operation_id))


def read_checkpoint_soon(checkpoint_id: int) -> None:
    """Ask this host's worker to read a checkpoint that is not on a local disk; at once."""
    _read_soon("queries.tasks.read_checkpoint", checkpoint_id)


def read_sink_soon(query_id: int) -> None:
    """Ask this host's worker to read the log of a query's file sink on a storage; at once."""
    _read_soon("queries.tasks.read_sink", query_id)


def look_at_tables_soon(query_id: int, host: str) -> None:
    """Ask a host's worker ("": this host's) to read the logs of a query's tables now."""
    _read_soon("queries.tasks.read_tables", query_id, host)


def _read_soon(task: str, row_id: int, host: str = "") -> None:
    queue = f"{settings.QUEUE}.{host or settings.HEADGATE_HOST}"
    try:
        _put(task, [row_id], queue, NUDGE_EXPIRES_S)
    except Exception as error:  # the broker is down: the next look at the page asks again
        logger.warning("%s(%s) not requested: %s", task, row_id, error)


def advance_deploys_soon() -> None:
    """Request the next steps of deploys, from any worker, once the transaction has committed."""
    transaction.on_commit(_send_deploys)


def _send_deploys() -> None:
    try:
        _put("queries.tasks.advance_deploys", [], settings.QUEUE, NUDGE_EXPIRES_S)
    except Exception as error:  # the broker is down: beat's tick will find them
        logger.warning("nudge of deploys not sent: %s", error)


def send_to_others(task: str, *args: Any, expires_s: float) -> None:
    """Send a task to every other host that has a heartbeat."""
    for host in sorted(hosts.heard_of() - {settings.HEADGATE_HOST}):
        _put(task, [*args], f"{settings.QUEUE}.{host}", expires_s)


def _send(task: str, kind: str, row_id: int) -> None:
    try:
        _put(task, [row_id], hosts.queue_of(kind, row_id), NUDGE_EXPIRES_S)
    except Exception as error:  # the broker is down: the sweep will find the row
        logger.warning("nudge %s(%s) not sent: %s", task, row_id, error)


def _put(task: str, args: list[Any], queue: str, expires_s: float) -> None:
    """Put a task into a queue, unless the queue is so long that its worker must be stuck.

    The queue's length is read first, with our own client: if Redis is not running, this fails
    immediately, whereas Celery would retry for six seconds in the middle of a request.
    """
    prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
    with _redis() as client:
        waiting: Any = client.llen(f"{prefix}{queue}")
    if waiting >= MOST_WAITING:
        logger.warning("%s not sent: %s tasks are waiting in queue %s", task, waiting, queue)
        return
    app.send_task(task, args=args, queue=queue, expires=expires_s, retry=False)


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


@contextmanager
def lease(name: str, *, limit_s: float) -> Iterator[bool]:
    """Hold a name among all workers while the block runs, for at most `limit_s`.

    Yields whether the name was free; without Redis, it never counts as free.
    """
    lock = connection().lock(f"{settings.QUEUE}:lease:{name}", timeout=limit_s)
    try:
        with _redis():
            held = lock.acquire(blocking=False)
    except redis.RedisError as error:
        logger.warning("no lease on %s: %s", name, error)
        held = False
    try:
        yield held
    finally:
        if held:
            try:
                lock.release()
            except redis.RedisError as error:  # it expires by itself, or has expired
                logger.warning("lease on %s not released: %s", name, error)
