"""A Spark UI is its authors' web server: who looks at it gives it nothing, and it reaches nothing.

`tests/browser/spark_ui` plays the same with a browser, `tests/spark/test_driver_walls.py` with
Spark's own UI.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from installation.spark_ui import proxy
from queries.domain.protocol import DriverStatus
from queries.domain.states import DriverState
from queries.models.access.accounts import BrowserSession
from queries.models.drivers import Driver, SparkUiVisit
from queries.services import spark_ui
from queries.services.spark_ui import TICKET_LASTS, VISIT_LASTS, forget_visits
from tests.launchers import in_memory
from tests.scenarios.stage import Stage
from tests.security.drivers.hostile_ui import HostileUi, Says, hostile_ui

pytestmark = pytest.mark.django_db(transaction=True)

HTML = ("Content-Type", "text/html")


@pytest.fixture
def driver(stage: Stage) -> Driver:
    """Return a living driver."""
    stage.application("flights")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    return Driver.objects.get(state=DriverState.LIVE)


@pytest.fixture
def ui(driver: Driver) -> Iterator[HostileUi]:
    """Return what listens at the port that Headgate gave to the driver."""
    assert driver.ui_port is not None
    with hostile_ui(driver.ui_port) as ui:
        yield ui


@pytest.fixture
def browser(viewer: User) -> Client:
    client = Client()
    client.force_login(viewer)
    return client


def ask(*paths: str, method: str = "GET", headers: Any = None) -> list[httpx.Response]:
    """Ask the server of Spark UIs, one path after the other."""

    async def story() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=proxy.application(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://ui.test") as client:
            return [await client.request(method, path, headers=headers) for path in paths]

    return asyncio.run(story())


def messages(target: str) -> list[Any]:
    """Return what is sent for a target exactly as it stands, message by message."""
    sent: list[Any] = []
    path, _, query = target.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": query.encode(), "headers": []}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(proxy.application()(scope, None, send))  # type: ignore[arg-type]
    return sent


def ticket_of(browser: Client, name: str = "flights") -> str:
    """Click "Spark UI" in the console; return the path that the browser is sent to."""
    answer = browser.get(f"/applications/{name}/spark-ui/", headers={"host": "127.0.0.1"})
    assert answer.status_code == 302, answer.content.decode()
    origin, _, path = answer["Location"].partition("/open/")
    assert origin == "http://127.0.0.1:8001"
    return f"/open/{path}"


def opened(browser: Client) -> str:
    """Open the Spark UI; return the secret path below which it is shown."""
    [answer] = ask(ticket_of(browser))
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rstrip("/")


# --- who gets in ----------------------------------------------------------------------
@pytest.mark.guarantee("G-UI-2")
def test_a_ticket_opens_once(browser: Client, ui: HostileUi) -> None:
    ticket = ticket_of(browser)
    first, second = ask(ticket, ticket)
    assert first.status_code == 303
    assert second.status_code == 403
    assert "has ended" in second.text


def test_a_ticket_is_of_no_use_after_half_a_minute(browser: Client, ui: HostileUi) -> None:
    ticket = ticket_of(browser)
    SparkUiVisit.objects.update(created_at=timezone.now() - TICKET_LASTS)
    [answer] = ask(ticket)
    assert answer.status_code == 403


@pytest.mark.parametrize("guess", ["/open/x", "/v/x/", "/v/", "/", "/jobs/", "/open/"])
def test_nobody_comes_in_by_guessing(browser: Client, ui: HostileUi, guess: str) -> None:
    opened(browser)
    before = len(ui.asked)
    [answer] = ask(guess)
    assert answer.status_code in (403, 404)
    assert len(ui.asked) == before


@pytest.mark.guarantee("G-UI-2")
@pytest.mark.parametrize("name", ["ticket", "path"])
def test_rows_do_not_hold_what_opens(browser: Client, ui: HostileUi, name: str) -> None:
    ticket = ticket_of(browser).removeprefix("/open/")
    [answer] = ask(f"/open/{ticket}")
    path = answer.headers["location"].strip("/").partition("/")[2]
    row = SparkUiVisit.objects.get()
    assert getattr(row, name) not in (ticket, path, None)
    assert ask(f"/open/{row.ticket}", f"/v/{row.path}/")[1].status_code == 403


def test_who_may_not_look_at_the_application_gets_no_ticket(outsider: User, driver: Driver) -> None:
    client = Client()
    client.force_login(outsider)
    assert client.get("/applications/flights/spark-ui/").status_code == 403
    assert Client().get("/applications/flights/spark-ui/").status_code == 302
    assert not SparkUiVisit.objects.exists()


def _sign_out(browser: Client, viewer: User) -> None:
    browser.post("/logout/")


def _switch_off(browser: Client, viewer: User) -> None:
    User.objects.filter(pk=viewer.pk).update(is_active=False)


def _take_the_role(browser: Client, viewer: User) -> None:
    viewer.groups.clear()


def _wait(browser: Client, viewer: User) -> None:
    SparkUiVisit.objects.update(opened_at=timezone.now() - VISIT_LASTS)


def _expire(browser: Client, viewer: User) -> None:
    BrowserSession.objects.update(expire_date=timezone.now() - timedelta(seconds=1))


def _end_the_driver(browser: Client, viewer: User) -> None:
    Driver.objects.update(state=DriverState.ENDED)


@pytest.mark.guarantee("G-UI-2")
@pytest.mark.parametrize(
    "happens", [_sign_out, _switch_off, _take_the_role, _wait, _expire, _end_the_driver]
)
def test_a_visit_ends_with_session_permission_and_driver(
    browser: Client, viewer: User, ui: HostileUi, happens: Callable[[Client, User], None]
) -> None:
    there = opened(browser)
    assert ask(f"{there}/jobs/")[0].status_code == 200
    happens(browser, viewer)
    assert ask(f"{there}/jobs/")[0].status_code == 403
    assert [one.path for one in ui.asked].count("/jobs/") == 1


def test_visits_that_are_over_are_forgotten(browser: Client, ui: HostileUi) -> None:
    opened(browser)
    assert forget_visits(now=timezone.now()) == 0
    assert forget_visits(now=timezone.now() + VISIT_LASTS + 2 * TICKET_LASTS) == 1


# --- where a request may go -----------------------------------------------------------
@pytest.mark.guarantee("G-UI-5")
def test_nothing_that_a_driver_says_moves_its_port(
    stage: Stage, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, said = driver.ui_port, in_memory._status

    def lying(*about: Any) -> DriverStatus | None:
        status = said(*about)
        return status and replace(
            status, application_id="http://127.0.0.1:6379/", java_version="believed"
        )

    monkeypatch.setattr(in_memory, "_status", lying)
    stage.look("flights")
    driver.refresh_from_db()
    assert (driver.java_version, driver.ui_port) == ("believed", given)


@pytest.mark.guarantee("G-UI-5")
def test_what_answers_to_anybody_is_not_the_ui(browser: Client, ui: HostileUi) -> None:
    """The driver has gone from its port and a service without our key has come there."""
    ui.says["/version"] = Says(status=200)
    [answer] = ask(ticket_of(browser))
    assert answer.status_code == 502
    assert [one.path for one in ui.asked] == ["/version"]
    assert "Authorization" not in ui.asked[0].headers


def test_a_driver_of_another_host_is_not_asked_here(
    browser: Client, ui: HostileUi, settings: Any
) -> None:
    there = opened(browser)
    Driver.objects.update(host="worker-2")
    assert ask(f"{there}/jobs/")[0].status_code == 403
    answer = browser.get("/applications/flights/spark-ui/")
    assert answer.status_code == 409
    assert "runs on host worker-2" in answer.content.decode()
    settings.SPARK_UI_URL = "https://{host}.ui.example.org"
    answer = browser.get("/applications/flights/spark-ui/")
    assert answer["Location"].startswith("https://worker-2.ui.example.org/open/")


@pytest.mark.parametrize("path", ["//evil.example.org/x", "/@evil.example.org/", "/..//../x?y=//z"])
def test_a_path_never_becomes_another_host(browser: Client, ui: HostileUi, path: str) -> None:
    assert messages(opened(browser) + path)[0]["status"] == 200
    assert ui.asked[-1].path.endswith(path.removeprefix("/..//.."))  # of this driver's UI


@pytest.mark.guarantee("G-UI-3")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_a_ui_is_only_read(browser: Client, ui: HostileUi, method: str) -> None:
    there = opened(browser)
    before = len(ui.asked)
    assert ask(f"{there}/jobs/job/kill/?id=1", method=method)[0].status_code == 405
    assert len(ui.asked) == before


# --- what it is told ------------------------------------------------------------------
@pytest.mark.guarantee("G-UI-3")
def test_cookies_and_what_else_says_who_looks_stay_here(browser: Client, ui: HostileUi) -> None:
    there = opened(browser)
    said = {
        "cookie": "headgate_session_8000=secret",
        "authorization": "Token secret",
        "referer": "http://127.0.0.1:8000/secret/",
        "x-forwarded-for": "10.1.2.3",
        "user-agent": "a browser",
        "accept": "text/html",
    }
    ask(f"{there}/jobs/?id=1", headers=said)
    told = {name.lower(): value for name, value in ui.asked[-1].headers.items()}
    assert ui.asked[-1].path == "/jobs/?id=1"
    assert set(told) <= {
        *("host", "accept", "accept-encoding", "connection", "user-agent"),
        *("authorization", "x-forwarded-context"),
    }
    assert told["authorization"].startswith("Bearer ey")
    assert "secret" not in str(told)
    assert told["x-forwarded-context"] == there


def test_a_cookie_that_it_sets_is_not_brought_back_to_it(browser: Client, ui: HostileUi) -> None:
    there = opened(browser)
    ui.says["/jobs/"] = Says(headers=(HTML, ("Set-Cookie", "spy=1; Path=/")))
    ask(f"{there}/jobs/", f"{there}/stages/")
    assert "Cookie" not in ui.asked[-1].headers


# --- what it may answer ---------------------------------------------------------------
@pytest.mark.guarantee("G-UI-4")
def test_only_harmless_headers_come_back_and_ours_are_on_top(
    browser: Client, ui: HostileUi
) -> None:
    there = opened(browser)
    ui.says["/jobs/"] = Says(
        headers=(
            HTML,
            ("Set-Cookie", "headgate_session_8000=theirs; Path=/"),
            ("Clear-Site-Data", '"*"'),
            ("Refresh", "0; url=http://evil.example.org/"),
            ("Content-Security-Policy", "sandbox allow-scripts allow-same-origin"),
            ("X-Frame-Options", "ALLOWALL"),
            ("Access-Control-Allow-Credentials", "true"),
            ("Service-Worker-Allowed", "/"),
            ("Strict-Transport-Security", "max-age=1"),
            ("WWW-Authenticate", "Basic"),
            ("Link", "</x>; rel=preload"),
        )
    )
    [answer] = ask(f"{there}/jobs/")
    assert set(answer.headers) == {
        *("content-type", "content-security-policy", "x-frame-options", "x-content-type-options"),
        *("referrer-policy", "cross-origin-opener-policy", "cache-control"),
        "access-control-allow-origin",
    }
    # Two policies: a browser obeys both, so that a later one cannot open what ours has closed.
    theirs, ours = answer.headers.get_list("content-security-policy")
    assert theirs == "sandbox allow-scripts allow-same-origin"
    assert ours == proxy.POLICY
    assert "allow-same-origin" not in ours
    assert "allow-top-navigation" not in ours
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "location",
    [
        "http://evil.example.org/",
        "//evil.example.org/",
        "http://127.0.0.1:6379/",
        "https://127.0.0.1:{port}/",
        "javascript:alert(1)",
        "http://127.0.0.1:{port}@evil.example.org/",
    ],
)
def test_a_redirect_leads_nowhere_else(browser: Client, ui: HostileUi, location: str) -> None:
    there = opened(browser)
    ui.says["/"] = Says(status=302, headers=(("Location", location.format(port=ui.port)),))
    [answer] = ask(f"{there}/")
    assert answer.status_code == 502
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "location",
    ["/jobs/?a=1", "http://127.0.0.1:{port}/jobs/?a=1", "jobs/?a=1", "{there}/jobs/?a=1"],
)
def test_sparks_own_redirects_stay_below_the_visit(
    browser: Client, ui: HostileUi, location: str
) -> None:
    there = opened(browser)
    where = location.format(port=ui.port, there=there)
    ui.says["/"] = Says(status=302, headers=(("Location", where),))
    [answer] = ask(f"{there}/")
    assert (answer.status_code, answer.headers["location"]) == (302, f"{there}/jobs/?a=1")


@pytest.mark.parametrize("status", [199, 600, 999])
def test_a_status_that_is_none_is_not_passed_on(
    browser: Client, ui: HostileUi, status: int
) -> None:
    there = opened(browser)
    ui.says["/jobs/"] = Says(status=status)
    [answer] = ask(f"{there}/jobs/")
    assert answer.status_code == 502


@pytest.mark.guarantee("G-UI-4")
def test_an_answer_without_end_is_cut(
    browser: Client, ui: HostileUi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "MOST_BYTES", 1_000_000)
    there = opened(browser)
    ui.says["/jobs/"] = Says(body=b"x" * 65_536, without_end=True)
    _, *pieces = messages(f"{there}/jobs/")
    assert sum(len(piece["body"]) for piece in pieces) <= 1_000_000
    assert all(piece["more_body"] for piece in pieces), "the browser is not told that this is all"


def test_a_driver_that_is_gone_is_told_in_a_sentence(browser: Client, driver: Driver) -> None:
    [answer] = ask(ticket_of(browser))
    assert answer.status_code == 502
    assert "is not responding" in answer.text


# --- the origin -----------------------------------------------------------------------
def test_the_consoles_own_address_is_refused_as_the_uis(
    browser: Client, driver: Driver, settings: Any
) -> None:
    settings.SPARK_UI_URL = "http://testserver"
    answer = browser.get("/applications/flights/spark-ui/")
    assert answer.status_code == 409
    assert "URL of the console itself" in answer.content.decode()


def test_behind_a_host_name_it_has_to_be_published(browser: Client, driver: Driver) -> None:
    answer = browser.get("/applications/flights/spark-ui/", headers={"host": "testserver"})
    assert answer.status_code == 409
    assert "HEADGATE_SPARK_UI_URL" in answer.content.decode()


def test_a_driver_of_an_earlier_release_has_no_link(browser: Client, driver: Driver) -> None:
    page = browser.get("/applications/flights/").content.decode()
    assert "/applications/flights/spark-ui/" in page
    Driver.objects.update(ui_port=None)
    page = browser.get("/applications/flights/").content.decode()
    assert "/applications/flights/spark-ui/" not in page
    answer = browser.get("/applications/flights/spark-ui/")
    assert "no Spark UI that Headgate can show" in answer.content.decode()


def test_two_drivers_have_different_ports_and_keys(stage: Stage, driver: Driver) -> None:
    stage.application("other")
    stage.query("more", "other")
    stage.up("more", "other")
    first, second = Driver.objects.filter(state=DriverState.LIVE)
    assert first.ui_port != second.ui_port
    specs = [stage.launcher.spec(one.application.name) for one in (first, second)]
    assert len({spec.ui_key for spec in specs}) == 2
    assert [spec.ui_port for spec in specs] == [first.ui_port, second.ui_port]
    assert spark_ui.free_port() not in (first.ui_port, second.ui_port)
