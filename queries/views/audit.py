"""The page of acts and changes: who asked for what, and what came of it."""

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET

from queries.roles import VIEW
from queries.selectors.reads import audit, operations, transitions
from queries.views.guard import needs
from queries.views.paging import page_of

#: What of the address filters, and by which column.
FILTERS = {
    "query": "query__name",
    "application": "application__name",
    "actor": "actor",
}
TABS = {"changes": "Changes", "operations": "Operations"}


@require_GET
@needs(VIEW)
def audit_page(request: HttpRequest) -> HttpResponseBase:
    """List changes of state or operations, newest first; all filters stand in the address."""
    tab = request.GET.get("tab", "changes")
    tab = tab if tab in TABS else "changes"
    everybody = request.GET.get("all") == "1"
    asked = {name: request.GET.get(name, "").strip() for name in FILTERS}
    chosen = {FILTERS[name]: value for name, value in asked.items() if value}
    cursor = request.GET.get("after", "")
    if tab == "operations":
        page = page_of(operations().filter(**chosen), by="created_at", cursor=cursor)
    else:
        rows = transitions() if everybody else audit()
        page = page_of(rows.filter(**chosen), by="at", cursor=cursor)
    context = {
        "page": page,
        "tab": tab,
        "tabs": list(TABS.items()),
        "filters": asked,
        "everybody": everybody,
        "filtered": any(asked.values()),
        "now": timezone.now(),
    }
    return render(request, "audit/list.html", context)


urlpatterns = [path("audit/", audit_page, name="audit")]
