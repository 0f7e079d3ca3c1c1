"""A script in a driver's Spark UI does not act as the person who looks at it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from playwright.sync_api import Page

from installation.spark_ui import proxy
from queries.domain.states import Desired, DriverState
from queries.models.definitions import Query
from queries.models.drivers import Driver
from tests.browser.conftest import Open, Site, serving
from tests.scenarios.stage import Stage
from tests.security.drivers.hostile_ui import HostileUi, Says, hostile_ui

pytestmark = [pytest.mark.browser, pytest.mark.redis]

LIMIT_MS = 60_000

#: The page: it reads what it can of the browser's cookies and of the console, stops a query as
#: the console's own form does, and posts the same without having read anything.
ATTACK = """<!doctype html><meta charset="utf-8"><title>Spark Jobs</title><script>
const site = "SITE", stop = site + "/queries/delays/stop/", found = {};
const tried = async (name, act) => {
  try { found[name] = await act(); } catch (error) { found[name] = "denied: " + error.name; }
};
(async () => {
  await tried("cookies", () => document.cookie);
  await tried("planted", () => { document.cookie = "csrftoken=" + "a".repeat(32); return "yes"; });
  await tried("stored", () => { sessionStorage.setItem("a", "b"); return "yes"; });
  await tried("opener", () => String(window.opener));
  await tried("acted", async () => {
    const page = await (await fetch(stop, {credentials: "include"})).text();
    const token = /name="csrfmiddlewaretoken" value="([^"]+)"/.exec(page)[1];
    const body = new URLSearchParams({csrfmiddlewaretoken: token, mode: "graceful"});
    return (await fetch(stop, {method: "POST", credentials: "include", body})).status;
  });
  await tried("api", async () => (await fetch(site + "/api/v1/queries/", {
    credentials: "include"})).status);
  await tried("blind", async () => { await fetch(stop, {method: "POST", credentials: "include",
    mode: "no-cors", body: new URLSearchParams({mode: "graceful"})}); return "sent"; });
  await tried("elsewhere", async () => { await fetch("http://127.0.0.1:9/" + location, {
    mode: "no-cors"}); return "sent"; });
  document.title = JSON.stringify(found);
})();
</script>"""


@pytest.fixture
def ui(stage: Stage) -> Iterator[HostileUi]:
    """Return the web server of a driver's author, at the port of that driver's UI."""
    stage.application("flights")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    port = Driver.objects.get(state=DriverState.LIVE).ui_port
    assert port is not None
    with hostile_ui(port) as ui:
        yield ui


def _attacked(look: Open, site: Site, ui: HostileUi, person: User) -> tuple[Page, dict[str, Any]]:
    """Open the Spark UI as a person does; return the page and what the script there has found."""
    theirs = (("Content-Type", "text/html"), ("Set-Cookie", "csrftoken=theirs; Path=/"))
    ui.says["/"] = Says(headers=theirs, body=ATTACK.replace("SITE", site.address).encode())
    console = look(person, "/applications/flights/")
    before = console.context.cookies()
    with console.context.expect_page() as opened:
        console.get_by_role("link", name="Spark UI").click()
    page = opened.value
    page.wait_for_function("document.title.startsWith('{')", timeout=LIMIT_MS)
    found: dict[str, Any] = json.loads(page.title())
    found["same cookies"] = console.context.cookies() == before
    return console, found


@pytest.mark.guarantee("G-UI-1")
def test_it_reads_nothing_changes_nothing_and_reaches_nobody(
    look: Open, site: Site, ui: HostileUi, operator: User, settings: Any
) -> None:
    with serving(proxy.application()) as address:
        settings.SPARK_UI_URL = address
        console, found = _attacked(look, site, ui, operator)
        console.reload()
        assert "sign in" not in console.title().lower(), "the person is still signed in"
    assert found == {
        "cookies": "denied: SecurityError",
        "planted": "denied: SecurityError",
        "stored": "denied: SecurityError",
        "opener": "null",
        "acted": "denied: TypeError",
        "api": "denied: TypeError",
        "blind": "denied: TypeError",
        "elsewhere": "denied: TypeError",
        "same cookies": True,
    }
    assert Query.objects.get(name="delays").desired == Desired.RUNNING
    assert all("Cookie" not in asked.headers for asked in ui.asked)


def test_on_another_port_alone_it_would_read_and_plant_cookies(
    look: Open, site: Site, ui: HostileUi, operator: User, settings: Any, monkeypatch: Any
) -> None:
    """Browsers share cookies between the ports of a host: a port is no wall without the policy."""
    monkeypatch.setattr(proxy, "OURS", ())
    with serving(proxy.application()) as address:
        settings.SPARK_UI_URL = address
        _, found = _attacked(look, site, ui, operator)
    assert found["planted"] == "yes"
    assert not found["same cookies"]
    assert found["acted"] == "denied: TypeError", "what it may not read, it cannot post"


def test_on_the_consoles_origin_it_would_act_as_the_person(
    look: Open, site: Site, ui: HostileUi, operator: User, settings: Any, monkeypatch: Any
) -> None:
    """The same attack without the guards: it stops a query in the name of the person."""
    monkeypatch.setattr(proxy, "OURS", ())
    console, uis = get_asgi_application(), proxy.application()

    async def together(scope: Any, receive: Any, send: Any) -> None:
        on_ui = scope["path"].startswith(("/v/", "/open/"))
        await (uis if on_ui else console)(scope, receive, send)

    with serving(together) as address:
        monkeypatch.setattr(
            "queries.views.supervision.applications.spark_ui.address", lambda *_, **__: address
        )
        monkeypatch.setattr(site, "address", address)
        page, found = _attacked(look, site, ui, operator)
        page.context.close()  # its stream ends before the server does
    assert found["api"] == 200
    assert found["acted"] == 200
    assert Query.objects.get(name="delays").desired == Desired.STOPPED
