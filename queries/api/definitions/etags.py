"""ETags of definitions: they change with the revision, never with a query's activity.

A PUT can therefore specify the definition that it is based on, and it does not become stale when a
batch commits in the meantime.
"""

import re

from rest_framework.request import Request

from queries.api.errors import PreconditionRequired
from queries.domain.errors import StaleRevision
from queries.models.applications import Application
from queries.models.definitions import Query

_ETAG = re.compile(r'\s*(?:W/)?"([^"]*)"\s*')


def etag(owner: Query | Application, revision: int | None) -> str:
    """Return the ETag for an owner's definition at a revision."""
    kind = "query" if isinstance(owner, Query) else "application"
    return f'"{kind}-{owner.pk}-r{revision or 0}"'


def check_if_match(
    request: Request, owner: Query | Application, revision: int | None, *, required: bool = True
) -> bool:
    """Return whether the request specified this definition; raise if it specified another one.

    A PUT without If-Match raises `PreconditionRequired` (428), a stale one `StaleRevision` (412).
    “*” matches any existing definition.
    """
    header = request.headers.get("If-Match", "").strip()
    if not header:
        if required:
            raise PreconditionRequired()
        return False
    if header == "*":
        return False
    current = etag(owner, revision).strip('"')
    if current not in [match.group(1) for match in _ETAG.finditer(header)]:
        raise StaleRevision(
            f"{owner} is now at revision {revision}, but If-Match specifies another one.",
            way_out="GET it again, apply your change to it, and PUT the result.",
        )
    return True
