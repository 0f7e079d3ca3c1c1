"""Wake supervision and pages after a commit; losing a nudge costs only seconds.

Services and the ingester say *what changed*, not who acts on it. The sweep
(`queries.tasks.sweep`) finds what a lost nudge would have announced.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from django.conf import settings
from django.db import transaction

from controlplane.celery import app
from controlplane.redis_client import connection

logger = logging.getLogger(__name__)


def reconcile_soon(application_id: int) -> None:
    """Ask for a reconcile of the application once the current transaction has committed."""
    transaction.on_commit(lambda: _send("queries.tasks.reconcile_application", application_id))


def reconcile_driver_soon(driver_id: int) -> None:
    """Ask for a reconcile of the driver's application once the transaction has committed."""
    transaction.on_commit(lambda: _send("queries.tasks.reconcile_driver", driver_id))


def advance_soon(operation_id: int) -> None:
    """Ask for the next step of an operation once the transaction has committed."""
    transaction.on_commit(lambda: _send("queries.tasks.advance_operation", operation_id))


def _send(task: str, row_id: int) -> None:
    try:
        # Celery's own client retries for six seconds where nobody listens, in the middle of a
        # request; ours fails at once.
        connection().ping()
        app.send_task(task, args=[row_id], retry=False)
    except Exception as error:  # the broker is down: the sweep will find the row
        logger.warning("nudge %s(%s) not sent: %s", task, row_id, error)


def changed(*topics: str) -> None:
    """Notify open pages, after commit, that topics such as "query:42" have changed."""
    transaction.on_commit(lambda: _publish(topics))


def _publish(topics: tuple[str, ...]) -> None:
    try:
        with connection().pipeline(transaction=False) as pipeline:
            for topic in topics:
                pipeline.publish(settings.CHANGED_CHANNEL, topic)
            pipeline.execute()
    except redis.RedisError as error:  # pages reload by themselves after a while
        logger.warning("change of %s not published: %s", ", ".join(topics), error)


@contextmanager
def lease(name: str, *, limit_s: float) -> Iterator[bool]:
    """Hold a name among all workers for as long as the block runs, `limit_s` at most.

    Yield whether it was free; without Redis it never is.
    """
    lock = connection().lock(f"{settings.QUEUE}:lease:{name}", timeout=limit_s)
    try:
        held = lock.acquire(blocking=False)
    except redis.RedisError as error:
        logger.warning("%s not leased: %s", name, error)
        held = False
    try:
        yield held
    finally:
        if held:
            try:
                lock.release()
            except redis.RedisError as error:  # it ends by itself, or has ended
                logger.warning("lease of %s not given back: %s", name, error)
