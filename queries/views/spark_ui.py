"""The link from an application's page to its driver's Spark UI."""

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import path
from django.utils import timezone

from queries.domain.errors import NotAllowed
from queries.roles import VIEW
from queries.selectors.supervision.applications import application_detail
from queries.services import spark_ui
from queries.views.console.guard import needs, user_of


@needs(VIEW)
def open_spark_ui(request: HttpRequest, name: str) -> HttpResponseBase:
    """Redirect the user with a one-time ticket to the origin that shows the driver's UI."""
    driver = application_detail(name).driver
    if driver is None:
        raise NotAllowed(f"{name} currently has no driver.", way_out="Start one of its queries.")
    there = spark_ui.address(driver, asked_at=f"{request.scheme}://{request.get_host()}")
    ticket = spark_ui.ticket(
        user=user_of(request).pk,
        session_key=str(request.session.session_key),
        driver=driver,
        now=timezone.now(),
    )
    answer = redirect(f"{there}/open/{ticket}")
    answer["Referrer-Policy"] = "no-referrer"
    answer["Cache-Control"] = "no-store"
    return answer


urlpatterns = [path("applications/<str:name>/spark-ui/", open_spark_ui, name="spark-ui")]
