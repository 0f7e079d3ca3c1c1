"""Codes that a release has renamed: errors about a former name include the current one."""

from collections.abc import Container

#: Former name -> current name.
_RENAMED = {
    "BROKEN": "ON_HOLD",
    "LOST": "UNREACHABLE",
    "ZOMBIE": "QUERY_MISSING",
    "BLIND": "NO_TELEMETRY",
    "broken": "on-hold",
    "zombie": "query-missing",
    "blind": "no-telemetry",
}


def use_instead(value: str, allowed: Container[str]) -> str:
    """Return what to use instead of a former name of an allowed value; "" for anything else."""
    name = _RENAMED.get(value, "")
    return f"It is now called {name}. Use that." if name and name in allowed else ""
