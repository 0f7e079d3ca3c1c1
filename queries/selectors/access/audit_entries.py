"""Read the audit log's entries for pages, REST and exports."""

import json
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from queries.models.access.audit_trail import AuditEntry

#: Filters of entries: the name in addresses, and the column.
FILTERS = {
    "actor": "actor",
    "act": "kind",
    "subject": "subject",
    "token": "token",
    "address": "address",
}
#: Entries read per chunk of the export.
_CHUNK = 2000


def entries(asked: Mapping[str, str]) -> QuerySet[AuditEntry]:
    """Return the entries that match these filters, newest first."""
    chosen = {column: asked[name] for name, column in FILTERS.items() if asked.get(name)}
    return AuditEntry.objects.filter(**chosen).order_by("-at", "-pk")


def exported(after: int) -> tuple[str, int]:
    """Return the chained entries that follow number `after` as JSON lines, and the last number.

    The text is "" at the end of the log. Number, seal and MAC are included, so that a copy can be
    compared with the log.
    """
    rows = AuditEntry.objects.filter(number__gt=after).order_by("number")[:_CHUNK]
    lines = [json.dumps(_line(row), separators=(",", ":")) + "\n" for row in rows]
    return "".join(lines), max((row.number or 0 for row in rows), default=after)


def _line(row: AuditEntry) -> dict[str, Any]:
    return {"number": row.number, **row.content(), "seal": row.seal, "mac": row.mac}
