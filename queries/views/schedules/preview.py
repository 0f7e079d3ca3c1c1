"""What the schedule on a form would do: its next planned times, or what starts it in words."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone

from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Invalid
from queries.domain.schedules.preview import preview
from queries.domain.schedules.rules import schedule_problems
from queries.domain.schedules.wording import listing_cost, when_words
from queries.roles import VIEW
from queries.views.console.guard import needs
from queries.views.definitions.spec_form import sentence

_PREFIX = "schedule_"


@needs(VIEW)
def schedule_preview(request: HttpRequest) -> HttpResponse:
    """Return the next five times of the form's schedule, or what is wrong with it as text.

    Nothing is returned while the form has nothing that starts it.
    """
    raw = {
        name: text
        for name in Schedule.model_fields
        if name != "params" and (text := request.GET.get(_PREFIX + name, "").strip())
    }
    if not raw.keys() & {"cron", "after", "files"}:
        return HttpResponse()
    try:
        schedule: Schedule = parsed(Schedule.model_validate, raw)
        if problems := schedule_problems(schedule, ends=True):
            raise Invalid(problems)
    except Invalid as error:
        wrong = (sentence(problem, problem.field.rpartition(".")[2]) for problem in error.problems)
        return render(request, "schedules/_times.html", {"problem": " ".join(wrong)})
    if schedule.kind != "cron":
        cost = listing_cost(schedule) if schedule.kind == "files" else ""
        summary = f"It starts {when_words(schedule)}."
        return render(request, "schedules/_times.html", {"said": f"{summary} {cost}".strip()})
    shown = preview(schedule, timezone.now())
    return render(request, "schedules/_times.html", {"shown": shown, "zone": schedule.time_zone})


urlpatterns = [path("schedule/preview/", schedule_preview, name="schedule-preview")]
