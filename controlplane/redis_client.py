"""Connections to Redis from processes of the control plane, with a limit on every wait."""

from functools import cache

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry


@cache
def connection() -> redis.Redis:
    """Return this process's Redis client."""
    return client(settings.REDIS_URL, limit_s=settings.REDIS_SOCKET_TIMEOUT_S, retries=1)


def client(url: str, *, limit_s: float, retries: int = 0) -> redis.Redis:
    """Return a client that waits at most `limit_s` for a connection and for each answer.

    A connection that broke is opened again `retries` times; a Redis that did not answer in time is
    not asked again. redis-py's own default retries for up to seven seconds more, in the middle of
    a request.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=limit_s,
        socket_connect_timeout=limit_s,
        health_check_interval=30,
        retry=Retry(NoBackoff(), retries, supported_errors=(redis.ConnectionError,)),
    )
