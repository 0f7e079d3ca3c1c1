"""The connection to Redis of a process of the control plane, with a limit on every wait."""

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

_client: redis.Redis | None = None


def connection() -> redis.Redis:
    """Return this process's Redis client, with a limit on every wait."""
    global _client
    if _client is None:
        _client = redis.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=settings.REDIS_SOCKET_TIMEOUT_S,
            socket_connect_timeout=settings.REDIS_SOCKET_TIMEOUT_S,
            health_check_interval=30,
            # redis-py's own default waits up to seven seconds more, in the midst of a request.
            retry=Retry(NoBackoff(), 1),
        )
    return _client
