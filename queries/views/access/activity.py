"""Actions by users and with tokens, for admins: a filtered list, and the whole log as a file."""

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import path
from django.utils import timezone

from queries.domain.access.acts import ACT_WORDS
from queries.roles import ADMINISTER
from queries.selectors.access.audit_entries import FILTERS, entries
from queries.services.access.audit_export import export_audit_log
from queries.views.console.guard import actor_and_now, needs
from queries.views.console.paging import filters, page_of

#: The other tabs of the audit log.
TABS = {"changes": "Changes", "operations": "Operations"}


@needs(ADMINISTER)
def activity(request: HttpRequest) -> HttpResponseBase:
    """List entries, newest first; all filters are in the URL."""
    asked = filters(request.GET, FILTERS)
    asked = {name: value.replace("\x00", "") for name, value in asked.items()}
    context = {
        "page": page_of(entries(asked), by="at", cursor=request.GET.get("after", "")),
        "tab": "activity",
        "tabs": TABS.items(),
        "acts": ACT_WORDS.items(),
        "filters": asked,
        "filtered": any(asked.values()),
        "now": timezone.now(),
    }
    return render(request, "access/audit/activity.html", context)


@needs(ADMINISTER)
def export(request: HttpRequest) -> HttpResponseBase:
    """Return the whole log as a file, with one line of JSON per entry."""
    answer = export_audit_log(request, **actor_and_now(request))
    answer["Content-Disposition"] = 'attachment; filename="headgate-audit.jsonl"'
    return answer


urlpatterns = [path("audit/export/", export, name="audit-export")]
