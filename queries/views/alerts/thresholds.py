"""The preview of a threshold on a query's form."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.html import escape

from queries.domain.alerts.thresholds import FIGURES
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import Threshold
from queries.domain.errors import Invalid
from queries.domain.validation.thresholds import threshold_problems
from queries.roles import VIEW
from queries.selectors.alerts.thresholds import preview
from queries.selectors.definitions import definitions
from queries.views.console.guard import needs
from queries.views.definitions.spec_form import sentence


@needs(VIEW)
def threshold_preview(request: HttpRequest, name: str) -> HttpResponse:
    """Return one sentence: how often the threshold in the form's row would have fired.

    An input that is not a threshold is answered with what is wrong with it, as text for its row.
    """
    query = definitions.query(name)
    try:
        threshold = _threshold(request)
    except Invalid as error:
        text = " ".join(sentence(one, one.field.rpartition(".")[2]) for one in error.problems)
    else:
        text = preview(query, threshold, now=timezone.now()).text
    return HttpResponse(escape(text))


def _threshold(request: HttpRequest) -> Threshold:
    """Return the row's threshold; its fields are named "thresholds-0-value"."""
    names = Threshold.model_fields
    raw: dict[str, Any] = {}
    for key in request.GET:
        name, value = key.rpartition("-")[2], request.GET.get(key, "").strip()
        if name in names and value:
            raw[name] = value
    raw.setdefault("figure", next(iter(FIGURES)))
    threshold: Threshold = parsed(Threshold.model_validate, raw)
    if problems := threshold_problems([threshold]):
        raise Invalid(problems)
    return threshold


urlpatterns = [
    path(
        "queries/<query:name>/thresholds/preview/",
        threshold_preview,
        name="query-threshold-preview",
    )
]
