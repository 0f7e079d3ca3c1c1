"""Connect to Redis from control plane processes, with a limit on every wait."""

from functools import cache

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

#: Timeout of a health check's connection and of each answer, in seconds.
LOOK_LIMIT_S = 1.0


@cache
def connection() -> redis.Redis:
    """Return this process's Redis client."""
    return client(settings.REDIS_URL, limit_s=settings.REDIS_SOCKET_TIMEOUT_S, retries=1)


def client(url: str, *, limit_s: float, retries: int = 0) -> redis.Redis:
    """Return a client that waits at most `limit_s` for a connection and for each response.

    A broken connection is reopened `retries` times; a request that timed out is not repeated. By
    default, redis-py would retry for up to seven more seconds, in the middle of a request.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=limit_s,
        socket_connect_timeout=limit_s,
        health_check_interval=30,
        retry=Retry(NoBackoff(), retries, supported_errors=(redis.ConnectionError,)),
    )
