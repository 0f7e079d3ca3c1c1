"""An isolated driver's other limits: system calls, open files, processes."""

import os
import re
from pathlib import Path

from queries.launchers.process.isolation import system_calls
from queries.launchers.process.isolation.trial import IsolationMissing

INIT = Path(__file__).with_name("init.py")
#: Open files per process; a RocksDB state store has a few thousand.
FILES = 65_536
#: Processes and threads per driver; a driver on 64 processors has about 1,000.
PROCESSES = 8_192
_COUNTED_APART = (5, 14)  # the Linux version from which processes are counted per user namespace


def limits() -> dict[str, int]:
    """Return limits by their resource(3) names.

    A driver's processes run under the worker's account. Only newer kernels count them per driver,
    and only if that account is not the root account.
    """
    bounds = {"RLIMIT_NOFILE": FILES}
    version = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if os.geteuid() != 0 and version >= _COUNTED_APART:
        bounds["RLIMIT_NPROC"] = PROCESSES
    return bounds


def system_call_filter() -> tuple[int | None, str]:
    """Return a descriptor for the filter (the caller must close it), or None and the reason."""
    try:
        return system_calls.compiled(), ""
    except IsolationMissing as error:
        return None, str(error)


def sentence(*, unfiltered: str) -> str:
    """Describe the drivers' limits; `unfiltered` says why system calls are not filtered."""
    calls = f"not filtered: {unfiltered}" if unfiltered else "filtered."
    bounded = f"{FILES:,} open files for each process"
    if "RLIMIT_NPROC" not in limits():
        return f"System calls are {calls} Limits: {bounded}. Processes and memory are not limited."
    return (
        f"System calls are {calls} Limits: {bounded}, {PROCESSES:,} processes and threads for each "
        "driver. Memory is not limited."
    )
