"""`manage.py ingest_events`: the process that stores the event streams in the database."""

import gc
import os
import signal
import threading
import uuid
from datetime import UTC, datetime
from typing import Any

import redis
from django.conf import settings
from django.core.management.base import BaseCommand
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane import hosts
from listeners.ingest import BLOCK_MS, Ingester


class Command(BaseCommand):
    """Ingest events until SIGTERM or SIGINT; several processes can run at the same time."""

    help = "Store events from Redis in the database until SIGTERM or SIGINT."
    requires_system_checks = ()  # they import every page: controlplane.celery

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the ingester in this thread."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        consumer = f"{settings.HEADGATE_HOST}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        ingester = Ingester(
            connect(settings.REDIS_URL),
            stream=settings.EVENT_STREAM,
            consumer=consumer,
            clock=lambda: datetime.now(UTC),
            lookup=hosts,
            living=hosts.living,
            revoked=hosts.revoked,
        )
        self.stdout.write(f"ingests {settings.EVENT_STREAM} as {consumer}")
        keep_what_is_loaded()
        ingester.run(stop)
        self.stdout.write(f"ingested {ingester.stored} entries")


def keep_what_is_loaded() -> None:
    """Exempt all that is loaded by now from Python's garbage collections.

    A batch of events causes dozens of them, and each full one looked at every module: a quarter of
    the ingester's time (`make bench ingest`).
    """
    gc.collect()
    gc.freeze()


def connect(url: str) -> redis.Redis:
    """Return a client with a limit on every wait; the loop does the retries."""
    return redis.Redis.from_url(
        url,
        socket_timeout=max(settings.REDIS_SOCKET_TIMEOUT_S, 2 * BLOCK_MS / 1000),
        socket_connect_timeout=settings.REDIS_SOCKET_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
