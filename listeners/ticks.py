"""What a worker repeats (`controlplane.ticks`): each function calls one other, and ends."""

import logging
from datetime import UTC, datetime

import redis
from django.conf import settings

from controlplane import hosts
from controlplane.hosts import launcher
from controlplane.servers import connection
from listeners import retention
from listeners.missing import gaps
from listeners.senders import believed_only

logger = logging.getLogger(__name__)


def judge_gaps() -> None:
    """Update the gaps of this host's drivers, and repair them with events from their spools."""
    try:
        gaps.judge(
            client=connection(),
            stream=settings.EVENT_STREAM,
            spooled=believed_only(launcher().spooled, hosts),
            now=datetime.now(UTC),
            host=settings.HEADGATE_HOST,
            drivers_here=hosts.drivers_here,
        )
    except redis.RedisError as error:  # the next call checks again
        logger.warning("cannot check for gaps because Redis is not responding: %s", error)


def expire() -> None:
    """Delete expired rows, if the last call left some or was some time ago."""
    now = datetime.now(UTC)
    if not retention.is_due(now=now):
        return
    retention.expire(
        now=now,
        raw_days=settings.PROGRESS_RETENTION_DAYS,
        history_days=settings.HISTORY_RETENTION_DAYS,
    )
