"""Read how busy this host's processors are; a container sees the figures of its entire host."""

import os
from pathlib import Path

from queries.domain.hosts import Pressure, waiting_share

_FILE = Path("/proc/pressure/cpu")


def read_pressure() -> Pressure:
    """Return this host's pressure; kernels without pressure figures report only their load."""
    try:
        share = waiting_share(_FILE.read_text())
    except OSError:  # no such file, or the kernel was booted without it
        share = None
    return Pressure(share, os.getloadavg()[0], os.cpu_count() or 1)
