"""Connect to servers: Redis with a limit on every wait, free local ports, TLS to this host."""

import secrets
import socket
import ssl
from collections.abc import Iterator
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


#: Below the usual ephemeral ports, so that they stay free.
_PORTS = range(20_000, 32_000)


def free_ports() -> Iterator[int]:
    """Yield free ports, starting at a random one."""
    start = secrets.randbelow(len(_PORTS))
    yield from filter(port_is_free, (*_PORTS[start:], *_PORTS[:start]))


def port_is_free(port: int) -> bool:
    """Return whether a server can listen on 127.0.0.1 at this port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def own_certificate(url: str) -> ssl.SSLContext | None:
    """Return a context that trusts only HEADGATE_TLS_CERT, for a URL of this machine.

    Returns None for every other URL; those are verified as usual, by name.
    """
    if not settings.TLS_CERT or not url.startswith("https://127.0.0.1:"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted itself, whoever issued it
    context.load_verify_locations(settings.TLS_CERT)
    return context
