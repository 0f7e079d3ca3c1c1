"""Wait until the system's programs work together, as long as there is progress."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress

from controlplane.home import Home, StartProblem
from controlplane.tls import own_certificate
from headgate_ground import identities
from installation.machine import claims, programs

STANDSTILL_S = 120  # seconds without progress
AT_MOST_S = 1800
LOOK_EVERY_S = 0.3
#: A program reported as a problem that uses this much CPU time is still starting.
BUSY_S = 2.0
_PROGRAMS = {"redis": "valkey", "database": "web"}  # part -> program whose log explains it


def wait_until_ready(home: Home, address: str, *, check: Callable[[], None], but: str = "") -> None:
    """Wait until /readyz reports no problem except `but`; call `check` at each poll.

    Raises `Trouble` after `STANDSTILL_S` without progress, or after `AT_MOST_S`.
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
    """Request /readyz; return whether all parts work, and a text with the problems."""
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
