"""Headgate's settings, with the launcher without processes, for measurements alone."""

from controlplane.settings import *  # noqa: F403 - the same settings, but for the launcher
from controlplane.settings import LAUNCHERS as REAL

LAUNCHERS = {**REAL, "double": "benchmarks.many.Double"}
LAUNCHER = "double"
