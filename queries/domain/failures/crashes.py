"""The meaning of the end of a driver's processes, and when repeated failures are a crash loop.

Supervision is not affected: restarts continue with backoff. Operators see one incident instead of
many failures.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.domain.failures.categories import GENERAL, Category, FailureAdvice
from queries.domain.protocol import CUT_OFF, Killer

#: Spark's exit code for a driver whose executors failed too often, and what it logs (SparkExitCode,
#: EXCEED_MAX_EXECUTOR_FAILURES).
EXECUTORS_FAILED = "11"
TOO_MANY = re.compile(r"Max number of executor failures \(\d+\) reached")
#: This many failures within `WINDOW` open an incident; see decisions/0005.
FAILURES = 5
WINDOW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """One incident: its first and last failure, and the total number of failures."""

    first_at: datetime
    last_at: datetime
    count: int


def crash_loop(failures: Iterable[datetime], *, now: datetime) -> CrashLoop | None:
    """Return the incident that is open now, from the times of one query's failures.

    `FAILURES` failures within `WINDOW` open it. It begins with the first failure that had no other
    failure within the `WINDOW` before it, and remains one incident as long as each failure occurs
    within `WINDOW` of the previous one, however far apart backoff spreads them. It ends `WINDOW`
    after the last failure.
    """
    times = sorted((at for at in failures if at <= now), reverse=True)
    chain: list[datetime] = []
    for at in times:
        if (chain[-1] if chain else now) - at > WINDOW:
            break
        chain.append(at)
    opened = any(
        newer - older <= WINDOW for newer, older in zip(chain, chain[FAILURES - 1 :], strict=False)
    )
    if not opened:
        return None
    return CrashLoop(first_at=chain[-1], last_at=chain[0], count=len(chain))


_FROM_CHECKPOINT = "The driver is restarted from the checkpoint."
_BUSY = "If this happens again, find out what keeps the CPUs, memory or disks of this host busy."
NOT_STARTED: dict[str, str] = {
    Killer.ISOLATION_LATE: "Driver not started: its isolation was not set up in time",
    Killer.ISOLATION_FAILED: "Driver not started: its isolation could not be set up",
}

#: Meaning and remedy, by who ended the driver.
_KILLED: dict[str, tuple[str, str]] = {
    Killer.ISOLATION_LATE: (
        "bubblewrap did not set up the driver's sandbox within five minutes, so Headgate ended "
        "the driver. None of your code was run.",
        f"The driver is restarted. {_BUSY}",
    ),
    Killer.ISOLATION_FAILED: (
        "bubblewrap could not set up the driver's sandbox. None of your code was run. The end of "
        "the driver's log shows the reason.",
        "The driver is restarted. Settings → System shows what this host lacks for isolating "
        "drivers.",
    ),
    Killer.PYTHON_LATE: (
        "The driver's Python process did not exit in time after its JVM had ended or after it "
        "was asked to exit, so Headgate killed it with SIGKILL. Memory was not the reason.",
        f"{_FROM_CHECKPOINT} The end of the driver's log shows what the process was doing.",
    ),
    Killer.JVM_LATE: (
        "The driver's Python process ended first. Its JVM did not end in time, so Headgate "
        "killed it with SIGKILL. Memory was not the reason.",
        f"{_FROM_CHECKPOINT} The end of the driver's log shows why its Python process ended.",
    ),
    Killer.WORKER: (
        "Headgate's worker killed the driver with SIGKILL. Memory was not the reason.",
        f"{_FROM_CHECKPOINT} The list of the application's drivers shows the worker's reason.",
    ),
    Killer.STRANGER: (
        "The driver was killed with SIGKILL (kill -9), but not by Headgate and not for lack of "
        "memory: the kernel did not end any process for that reason while the driver ran.",
        f"{_FROM_CHECKPOINT} If this happens again, find out what kills processes on this "
        "host: a service manager or container, an admin, or the application's own code.",
    ),
    Killer.MEMORY_OR_STRANGER: (
        "The driver was killed with SIGKILL, but not by Headgate: either by the kernel, which "
        "ended processes on this host for lack of memory while the driver ran, or by kill -9.",
        f"{_FROM_CHECKPOINT} The kernel log (dmesg) lists the processes that it ended.",
    ),
}


def words(code: str) -> str:
    """Return how a process ended, from "0", "1"…, "SIGKILL"… or "UNKNOWN"."""
    if code == "UNKNOWN":
        return "ended for an unknown reason"
    return f"killed by {code}" if code.startswith("SIG") else f"exited with {code or 'no code'}"


def advice(python: str, jvm: str, killed: str) -> FailureAdvice:
    """Explain a driver's end and the remedy; `killed` is a `Killer`, "" if unknown."""
    meaning, way_out = _KILLED.get(killed) or _unknown_killer(python, jvm)
    return FailureAdvice(Category.PROCESS, meaning, way_out)


def _unknown_killer(python: str, jvm: str) -> tuple[str, str]:
    general = GENERAL[Category.PROCESS]
    if jvm == str(CUT_OFF):
        return (
            "The driver ended itself: neither the store of its checkpoint nor Headgate's worker "
            "had responded for some time, so another host could have taken over the checkpoint.",
            f"{_FROM_CHECKPOINT} Check the connection of this host to the store.",
        )
    if "SIGKILL" in (python, jvm):
        return (
            "The driver was killed with SIGKILL. The sender is unknown.",
            _FROM_CHECKPOINT,
        )
    if "UNKNOWN" in (python, jvm):
        return (
            "The driver is gone. How it ended is unknown: its shim died too, or the host was "
            "restarted.",
            general.way_out,
        )
    if jvm in ("SIGSEGV", "SIGBUS", "SIGABRT", "134"):
        return (
            "The JVM crashed.",
            f"{general.way_out} Look for an hs_err file in the driver's folder.",
        )
    return general.meaning, general.way_out
