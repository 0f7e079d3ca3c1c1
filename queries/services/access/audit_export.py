"""Export the audit log. The log also records the export."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

from queries.domain.access.acts import Act
from queries.selectors.access.audit_entries import exported
from queries.services.access.audit_trail import record_act

JSON_LINES = "application/x-ndjson"


def export_audit_log(
    request: HttpRequest, *, actor: str, now: datetime, after: int = 0
) -> StreamingHttpResponse:
    """Stream the entries after number `after` as JSON lines, fetching about 1,000 at a time.

    The export is recorded before anything is sent.
    """
    record_act(Act.EXPORTED, actor=actor, now=now, subject="audit log", what="log", since=after)
    # Under ASGI, Django would read a plain iterator into memory completely first.
    in_a_loop = isinstance(request, ASGIRequest)
    lines = _asked_for_in_a_loop(after) if in_a_loop else _asked_for(after)
    answer = StreamingHttpResponse(lines, content_type=JSON_LINES)
    answer["Cache-Control"] = "no-store"
    return answer


def _asked_for(after: int) -> Iterator[str]:
    while (found := exported(after))[0]:
        lines, after = found
        yield lines


async def _asked_for_in_a_loop(after: int) -> AsyncIterator[str]:
    while (found := await sync_to_async(exported)(after))[0]:
        lines, after = found
        yield lines
