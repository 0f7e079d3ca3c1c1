"""Prepare the programs' requirements, and wait until the programs work together."""

import hashlib
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.db import DatabaseError, connection, connections

from controlplane import environment
from controlplane.home import Home, StartProblem, read_line, write_private
from controlplane.servers import own_certificate
from headgate_ground import identities
from headgate_ground.masking import mask_text
from installation.machine import claims, programs
from queries.jvm.compiled import NotCompiled, existing, our_jar
from queries.releases import TablesRefused
from queries.services.system.installation import resume


def database_sentence() -> str:
    """Return a description of the database in use, without its password."""
    if connection.vendor == "sqlite":
        return f"SQLite at {settings.DATABASES['default']['NAME']}"
    return f"{connection.display_name} at {mask_text(environment.value_of('DATABASE_URL'))}"


def prepare_database(now: datetime) -> None:
    """Migrate the tables, and let supervision restart the drivers that a stop had ended.

    Raises `StartProblem` if the database cannot be used, or belongs to another release.
    """
    try:
        call_command("migrate", interactive=False, verbosity=0)
        resume(now=now)
    except TablesRefused as refused:
        raise StartProblem(refused.message, refused.way_out) from refused
    except DatabaseError as error:
        raise StartProblem(
            f"The database cannot be used: {mask_text(str(error)).strip()}",
            "Start or repair it, correct DATABASE_URL, or unset DATABASE_URL to use SQLite.",
        ) from error
    finally:
        connections.close_all()


def collect_static_files() -> bool:
    """Collect the static files if any of them has changed; return whether any had."""
    stamp = settings.STATIC_ROOT / ".collected"
    digest = _static_digest()
    if read_line(stamp) == digest:
        return False
    call_command("collectstatic", interactive=False, verbosity=0)
    write_private(stamp, digest)
    return True


def _static_digest() -> str:
    """Return a digest of the path, size and time of every static file."""
    lines = []
    for finder in finders.get_finders():
        for path, storage in finder.list([]):
            status = os.stat(storage.path(path))
            lines.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def lacks_java_classes() -> bool:
    """Return whether our Java classes must be compiled on this host: no wheel brought them."""
    return existing(settings.JARS_DIR) is None


def compile_java_classes(java_home: Path) -> str:
    """Compile our Java classes; return "", or a sentence that says why there are none.

    Everything runs without them, except queries whose checkpoints are not on a local disk: those
    wait, and the worker tries again.
    """
    try:
        our_jar(settings.JARS_DIR, str(java_home))
    except NotCompiled as error:
        return f"{error} Until then, queries with checkpoints on S3 or HDFS wait."
    return ""


def first_admin() -> str | None:
    """Create `admin` with a random password if there is no user yet; return the password."""
    users = get_user_model()
    try:
        if users.objects.exists():
            return None
        password = secrets.token_urlsafe(12)
        users.objects.create_superuser(username="admin", password=password)
        return password
    finally:
        connections.close_all()


STANDSTILL_S = 120  # seconds without progress
AT_MOST_S = 1800
LOOK_EVERY_S = 0.3
#: A program reported as a problem that uses this much CPU time is still starting.
BUSY_S = 2.0
_PROGRAMS = {"redis": "valkey", "database": "web"}  # part -> program whose log explains it


def wait_until_ready(home: Home, address: str, *, check: Callable[[], None], but: str = "") -> None:
    """Wait until /readyz reports no problem except `but`; call `check` at each poll.

    Raises `StartProblem` after `STANDSTILL_S` without progress, or after `AT_MOST_S`.
    """
    began = time.monotonic()
    progress = _Progress(home)
    while True:
        check()
        ready, problems = _readiness(address)
        if ready or set(problems) == {but}:
            return
        still = progress.standstill_s(problems)
        if still > STANDSTILL_S or time.monotonic() - began > AT_MOST_S:
            break
        time.sleep(LOOK_EVERY_S)
    raise StartProblem(
        f"The system is not ready after {time.monotonic() - began:.0f} s. "
        + " ".join(f"{name}: {sentence}" for name, sentence in problems.items()),
        "\n".join(_tail(home, name) for name in problems or ("web",)).strip(),
    )


class _Progress:
    """When progress was last seen: the reported problems changed, or a program was busy."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._problems: frozenset[str] = frozenset()
        self._used: dict[tuple[int, int], float] = {}
        self._at = time.monotonic()

    def standstill_s(self, problems: Iterable[str]) -> float:
        """Return the seconds without progress."""
        names = frozenset(problems)
        used = {
            (process.pid, process.start_time): identities.cpu_s(process.pid)
            for process in claims.own_processes(self._home)
            if process.name in {_PROGRAMS.get(name, name) for name in names}
        }
        busy = any(spent - self._used.get(who, 0.0) >= BUSY_S for who, spent in used.items())
        if busy or names != self._problems:
            self._problems, self._used, self._at = names, used, time.monotonic()
        return time.monotonic() - self._at


def _tail(home: Home, part: str) -> str:
    name = _PROGRAMS.get(part, part)
    return f"The end of {home.logs}/{name}.log:\n{programs.log_tail(home, name)}"


def _readiness(address: str) -> tuple[bool, dict[str, str]]:
    """Request /readyz; return whether all parts work, and a description of the problems."""
    try:
        url = f"{address}readyz"
        with urllib.request.urlopen(url, timeout=5, context=own_certificate(url)) as answer:
            return answer.status == 200, {}
    except urllib.error.HTTPError as error:
        with suppress(ValueError, KeyError, AttributeError):
            checks = json.loads(error.read())["checks"]
            return False, {
                name: check["message"] for name, check in checks.items() if check["status"] != "ok"
            }
        return False, {"web": f"it responds with {error.code}"}
    except OSError:
        return False, {"web": "it is not responding yet"}
