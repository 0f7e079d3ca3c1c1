"""Control access to drivers' Spark UIs with one-time tickets and the visits that they open.

A ticket is issued to a user's session for one driver. The Spark UI server accepts the ticket once
and returns an unguessable path. Below that path, it shows this driver's UI for as long as the
session, the permission and the driver exist.
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from controlplane.servers import free_ports
from queries.domain.errors import NotAllowed
from queries.domain.states import OPEN_DRIVER_STATES
from queries.models.access.accounts import BrowserSession, living
from queries.models.drivers import Driver, SparkUiVisit
from queries.roles import VIEW

#: A browser uses the ticket immediately after the redirect.
TICKET_LASTS = timedelta(seconds=30)
#: A working day; after that, open the page from the console again.
VISIT_LASTS = timedelta(hours=8)
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True, slots=True)
class VisitedUi:
    """The Spark UI that a visit gives access to."""

    driver: int
    epoch: int
    port: int  # on 127.0.0.1 of the driver's host


def free_port() -> int | None:
    """Return a free port of this host for a driver's UI; None if there is none."""
    local_drivers = Driver.objects.filter(
        host=settings.HEADGATE_HOST, state__in=sorted(OPEN_DRIVER_STATES)
    )
    used_ports = set(local_drivers.values_list("ui_port", flat=True))
    return next((port for port in free_ports() if port not in used_ports), None)


def address(driver: Driver, *, console_origin: str) -> str:
    """Return the origin that serves a driver's UI to a browser that uses the console.

    `console_origin` is the console's origin, such as "https://headgate.example.org". Raises
    `NotAllowed`, whose message says what to do, if the UI cannot be shown.
    """
    if driver.ui_port is None:
        raise NotAllowed(
            "This driver has no Spark UI that Headgate can show.",
            way_out=(
                "No port was free when the driver started; restart the application. A driver in a "
                "pod never has one."
            ),
        )
    template = settings.SPARK_UI_URL
    if driver.host != settings.HEADGATE_HOST and "{host}" not in template:
        raise NotAllowed(
            f"The driver runs on host {driver.host}; its Spark UI is reachable only from there.",
            way_out=(
                "Publish each host's Spark UI server and use {host} in HEADGATE_SPARK_UI_URL "
                "(docs/several-hosts.md)."
            ),
        )
    host = console_origin.partition("://")[2]
    if not template and host.rpartition(":")[0] not in _LOOPBACK and host not in _LOOPBACK:
        raise NotAllowed(
            "The Spark UI is not published: HEADGATE_SPARK_UI_URL is not set.",
            way_out=(
                "Publish port HEADGATE_SPARK_UI_PORT of the driver's host under a separate "
                "host name and set HEADGATE_SPARK_UI_URL to it."
            ),
        )
    scheme = "https" if settings.TLS_CERT else "http"
    ui_origin = template.replace("{host}", driver.host) or (
        f"{scheme}://127.0.0.1:{settings.SPARK_UI_PORT}"
    )
    if ui_origin == console_origin:
        raise NotAllowed(
            "HEADGATE_SPARK_UI_URL is the URL of the console itself.",
            way_out=(
                "Use another host name or port for the Spark UI, because it runs scripts "
                "written by others."
            ),
        )
    return str(ui_origin)


def ticket(*, user: int, session_key: str, driver: Driver, now: datetime) -> str:
    """Return a short-lived, one-time ticket for the driver's UI, for this session's user."""
    text = secrets.token_urlsafe(32)
    SparkUiVisit.objects.create(
        user_id=user,
        session_key=session_key,
        driver=driver,
        created_at=now,
        ticket=_digest(text),
    )
    return text


def open_visit(text: str, *, now: datetime) -> str | None:
    """Redeem a ticket; return the visit's secret path, or None if the ticket is not valid."""
    path = secrets.token_urlsafe(32)
    fresh = SparkUiVisit.objects.filter(
        ticket=_digest(text), opened_at=None, created_at__gt=now - TICKET_LASTS
    )
    return path if fresh.update(opened_at=now, path=_digest(path)) else None


def shown(path: str, *, now: datetime) -> VisitedUi | None:
    """Return the UI currently shown below a visit's path; None if there is none (or no longer)."""
    visit = (
        SparkUiVisit.objects.select_related("user", "driver__application")
        .filter(path=_digest(path), opened_at__gt=now - VISIT_LASTS)
        .first()
    )
    if visit is None or not visit.user.is_active:
        return None
    if not visit.user.has_perm(VIEW, visit.driver.application):
        return None
    if not BrowserSession.objects.filter(living(now), session_key=visit.session_key).exists():
        return None
    driver = visit.driver
    if driver.host != settings.HEADGATE_HOST or driver.state not in OPEN_DRIVER_STATES:
        return None
    return None if driver.ui_port is None else VisitedUi(driver.pk, driver.epoch, driver.ui_port)


def forget_visits(*, now: datetime) -> int:
    """Delete expired visits; return how many."""
    return SparkUiVisit.objects.filter(created_at__lt=now - VISIT_LASTS - TICKET_LASTS).delete()[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
