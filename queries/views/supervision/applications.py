"""Application pages: driver, pools, listeners and configuration, with live updates.

The link to a driver's Spark UI is also part of this module.
"""

from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from headgate_ground.masking import mask
from listeners import selectors as heard
from queries.domain.definitions.configuration import advice, cores_of
from queries.domain.definitions.labels import parse_filters
from queries.domain.definitions.spec import ApplicationSpec, PoolSpec
from queries.domain.errors import NotAllowed
from queries.domain.states import verbs_of
from queries.domain.supervision.observation import executors
from queries.roles import VIEW
from queries.selectors.access import teams
from queries.selectors.code import asking
from queries.selectors.definitions.definitions import application_definition
from queries.selectors.hosts import away
from queries.selectors.manifests import owned
from queries.selectors.rows import label_names, labelled
from queries.selectors.supervision.applications import (
    ApplicationDetail,
    application_detail,
    application_details,
    applications,
    drivers_of,
    pool_form,
)
from queries.selectors.supervision.history import transitions
from queries.selectors.triggers.cores import waits
from queries.services import spark_ui
from queries.views.console.fragments import (
    ROWS,
    Changes,
    Drawn,
    fragments,
    keys,
    listed,
    newcomers,
    numbers,
    parts,
    whole,
)
from queries.views.console.shell import needs, user_of
from queries.views.definitions.application_edit import urlpatterns as edit_urls
from queries.views.definitions.reviews import changes, readable
from queries.views.supervision.application_actions import urlpatterns as act_urls

DRIVERS_SHOWN = 10
ACTS_SHOWN = 15


@needs(VIEW)
def application_list(request: HttpRequest) -> HttpResponseBase:
    """List applications with their driver, queries, pools and problems."""
    names = ("q", "label", "team")
    search, label, team = (request.GET.get(name, "").strip() for name in names)
    now = timezone.now()
    rows = labelled(applications(), parse_filters({"label": label}), "labels")
    if search:
        rows = rows.filter(name__icontains=search)
    if team:
        rows = rows.filter(team__name=team.replace("\x00", ""))
    page = Paginator(rows.order_by("name"), ROWS).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "details": application_details(list(page.object_list)),
        "topic": listed("applications", (row.pk for row in page.object_list), now),
        "search": search,
        "label": label,
        "team": team,
        "teams": list(teams().values_list("name", flat=True)),
        "label_names": label_names(),
        "now": now,
    }
    return render(request, "supervision/applications/list.html", context)


@needs(VIEW)
def application_page(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show one application: driver, pools with their queries, listeners, losses, history."""
    detail = application_detail(name)
    context = {
        **_moving(detail, timezone.now()),
        "readable": readable(mask(detail.newest.spec)) if detail.newest else "",
        "teams": list(teams().values_list("name", flat=True)),
        "owned": owned(detail.application),
    }
    return render(request, "supervision/applications/application.html", context)


def _moving(detail: ApplicationDetail, now: datetime) -> dict[str, Any]:
    """Return the live parts of an application's page."""
    spec = ApplicationSpec.model_validate(detail.newest.spec if detail.newest else {})
    return {
        "detail": detail,
        "application": detail.application,
        "driver": detail.driver,
        "script": detail.script,
        "question": asking(detail.script),
        "can": " ".join(_verbs(detail)),
        "spec": spec,
        "pools": _pools(detail),
        "advice": _advice(detail, spec),
        "starved": waits(detail, now=now)[1],
        "telemetry": detail.telemetry,
        "drops": heard.drops_of(detail.driver.pk) if detail.driver else [],
        "drivers": drivers_of(detail.application)[:DRIVERS_SHOWN],
        "executors": executors(detail.driver.executors if detail.driver else [], now=now),
        "acts": transitions(application=detail.application)[:ACTS_SHOWN],
        "silent": away(detail.application),
        "now": now,
    }


@fragments("applications", hears=("application", "query", "driver"))
def draw_applications(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the visible rows of changed applications, and the number of new applications."""
    rows = applications().filter(pk__in=numbers(key))
    if changes is not None:
        rows = rows.filter(
            Q(pk__in=keys(changes, "application"))
            | Q(queries__in=keys(changes, "query"))
            | Q(drivers__in=keys(changes, "driver"))
        ).distinct()
    for detail in application_details(list(rows)):
        context = {"detail": detail, "now": now}
        html = render_to_string("supervision/applications/_row.html", context)
        yield f"application-{detail.application.pk}", html
    yield from newcomers("applications", applications(), key)


_PARTS = ("state", "lead", "notes", "script", "pools", "listening", "executors", "drivers", "acts")


@fragments("application", hears=("application", "query", "driver"), own_key_only=("application",))
def draw_application(key: str, changes: Changes, now: datetime) -> Drawn:
    """Render the parts of an application's page that change."""
    row = applications().filter(pk=whole(key) or 0).first()
    if row is None:
        return
    detail = application_details([row])[0]
    if not _concerns(detail, changes):
        return
    folder = "supervision/applications"
    yield from parts(_PARTS, "application", folder, key, _moving(detail, now))


def _concerns(detail: ApplicationDetail, changes: Changes) -> bool:
    """Return whether a message is about this application, its driver or its queries."""
    if changes is None or keys(changes, "application"):
        return True
    if detail.driver and detail.driver.pk in keys(changes, "driver"):
        return True
    return bool({query.pk for query in detail.queries} & keys(changes, "query"))


def _verbs(detail: ApplicationDetail) -> list[str]:
    """Return the verbs shown on the page: a script's own; defined queries start individually."""
    if detail.script is None:
        return ["restart", "stop"]
    return verbs_of(detail.script.desired, detail.script.phase)


def _pools(detail: ApplicationDetail) -> list[dict[str, Any]]:
    """Return the pools, each with its share of the cores when all pools are busy."""
    busy = [holding for holding in detail.pools if holding.queries]
    whole = sum(holding.pool.weight for holding in busy) + bool(detail.default_pool)
    return [
        {
            "pool": holding.pool,
            "queries": holding.queries,
            "share": round(100 * holding.pool.weight / whole) if holding.queries else 0,
        }
        for holding in detail.pools
    ]


def _advice(detail: ApplicationDetail, spec: ApplicationSpec) -> list[str]:
    return advice(
        [PoolSpec.model_validate(pool_form(holding.pool)) for holding in detail.pools],
        cores=cores_of(spec.master),
        queries={
            holding.pool.name: [query.name for query in holding.queries] for holding in detail.pools
        },
        scheduler_mode=spec.scheduler_mode,
    )


@needs(VIEW)
def application_revisions(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show an application's revisions, each compared with the previous one."""
    definition = application_definition(name)
    pairs = zip(definition.revisions, [*definition.revisions[1:], None], strict=True)
    context = {
        "found": definition,
        "application": definition.application,
        "revisions": [
            (row, changes(mask(before.spec) if before else None, mask(row.spec)))
            for row, before in pairs
        ],
    }
    return render(request, "definitions/revisions.html", context)


@needs(VIEW)
def open_spark_ui(request: HttpRequest, name: str) -> HttpResponseBase:
    """Redirect the user with a one-time ticket to the origin that shows the driver's UI."""
    driver = application_detail(name).driver
    if driver is None:
        raise NotAllowed(f"{name} currently has no driver.", way_out="Start one of its queries.")
    origin = spark_ui.address(driver, console_origin=f"{request.scheme}://{request.get_host()}")
    ticket = spark_ui.ticket(
        user=user_of(request).pk,
        session_key=str(request.session.session_key),
        driver=driver,
        now=timezone.now(),
    )
    answer = redirect(f"{origin}/open/{ticket}")
    answer["Referrer-Policy"] = "no-referrer"
    answer["Cache-Control"] = "no-store"
    return answer


urlpatterns = [
    path("applications/", application_list, name="applications"),
    *edit_urls,
    path("applications/<str:name>/", application_page, name="application"),
    path("applications/<str:name>/revisions/", application_revisions, name="application-revisions"),
    path("applications/<str:name>/spark-ui/", open_spark_ui, name="spark-ui"),
    *act_urls,
]
