"""A query's Async tab: its slow remote calls, what limits them, and what would help."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path

from queries.domain.async_calls import FAILING, AsyncOperator, Bound, OperatorAdvice
from queries.roles import VIEW
from queries.selectors import visible
from queries.selectors.triggers.advice import async_operators
from queries.views.console.fragments import Changes, Drawn, fragments
from queries.views.console.guard import needs
from queries.views.console.numbers import whole
from queries.views.supervision.query_page import head


@needs(VIEW)
def async_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show a query's async operators, with figures and advice."""
    context = head(request, name, "query-async")
    context["operators"] = [_shown(*pair) for pair in async_operators(context["query"].pk)]
    return render(request, "async_calls/async.html", context)


@fragments("async", hears=("query",), own_key_only=("query",))
def draw_async(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw one query's operators."""
    query = visible.queries().filter(pk=whole(key) or 0, archived_at=None).first()
    operators = async_operators(query.pk) if query else []
    if operators:
        shown = [_shown(*pair) for pair in operators]
        context = {"query": query, "operators": shown, "now": now}
        yield f"async-{key}", render_to_string("async_calls/_async.html", context)


#: Amber if action is needed, neutral if it only states a limit.
_TONES = {Bound.REMOTE: "warn", Bound.CPU: "warn", Bound.SOURCE: "ok"}
_BOUND_WORDS = {
    Bound.LIMIT: "another row was waiting because of the limit",
    Bound.KEYS: "all available rows were waiting for their key",
    Bound.SOURCE: "no more rows were available",
}


def _shown(operator: AsyncOperator, advice: OperatorAdvice) -> dict[str, Any]:
    """Return the template's context for an operator."""
    return {
        "one": operator,
        "advice": advice,
        "tone": _TONES.get(advice.bound, "calm"),
        "failing": operator.failed >= FAILING,
        "failed": f"{operator.failed:.1%}",
        "cpu": f"{operator.cpu:.0%}",
        "keys": f"{operator.keys:,.0f}",
        "found": [
            (words, f"{operator.delay_shares[bound]:.0%}") for bound, words in _BOUND_WORDS.items()
        ],
    }


urlpatterns = [path("queries/<query:name>/async/", async_tab, name="query-async")]
