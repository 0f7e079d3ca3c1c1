"""Notice a reverse proxy that is not declared in HEADGATE_TRUSTED_PROXIES.

All its clients then count as one address: ten wrong tokens or passwords of one slow down all, they
share the limit of connections, and the audit log names the proxy. Only requests of signed-in users
are considered, because anyone can send X-Forwarded-For.
"""

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from queries.domain.system import Part, ok, problem

PROXIES = "proxies"
#: How long a proxy is reported after its last request; a process forgets it when it ends.
_REPORTED_FOR = timedelta(hours=1)


class _Undeclared:
    """The undeclared proxy seen last by this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._address = ""
        self._since: datetime | None = None
        self._last: datetime | None = None

    def note(self, address: str, now: datetime) -> None:
        """Record a request that came through an undeclared proxy."""
        with self._guard:
            if address != self._address or self._since is None:
                self._address, self._since = address, now
            self._last = now

    def seen(self, now: datetime) -> tuple[str, datetime] | None:
        """Return the proxy's address and since when it is known; None if there is none."""
        with self._guard:
            if self._since is None or self._last is None or now - self._last > _REPORTED_FOR:
                self._since = None
                return None
            return self._address, self._since


_undeclared = _Undeclared()


def note_proxy(meta: Mapping[str, Any], *, now: datetime) -> None:
    """Record the sender of a signed-in user's request if it forwards it without being declared.

    The address of a declared proxy's client has been taken from the header (`installation.asgi`).
    """
    address, forwarded = str(meta.get("REMOTE_ADDR") or ""), meta.get("HTTP_X_FORWARDED_FOR")
    if address and forwarded and address not in (one.strip() for one in forwarded.split(",")):
        _undeclared.note(address, now)


def proxies_part(now: datetime) -> Part:
    """Return whether requests come through a proxy that is not declared."""
    found = _undeclared.seen(now)
    if found is None:
        return ok(PROXIES, "No request came through an undeclared proxy.")
    address, since = found
    return problem(
        PROXIES,
        f"Requests come through a proxy at {address} that is not declared, so all its clients "
        "count as one address: the wrong tokens and passwords of one slow down all. Add the proxy "
        "to HEADGATE_TRUSTED_PROXIES and restart.",
        since,
    )
