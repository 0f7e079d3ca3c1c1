"""A real web server over the tests' database, and Debian's Chromium in front of it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
import uvicorn
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, expect

from controlplane.celery import app
from queries.models.access.accounts import Team
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.batches import batches

START_LIMIT_S = 60


@dataclass
class Site:
    """The console at an address of its own."""

    address: str
    publisher: "redis.Redis"

    def say(self, message: str) -> None:
        """Tell the pages that something has changed, as services and ingester do."""
        self.publisher.publish(django_settings.CHANGED_CHANNEL, message)


def give_session(context: BrowserContext, address: str, user: User) -> None:
    """Sign a browser in at an address."""
    client = Client()
    client.force_login(user)
    name = django_settings.SESSION_COOKIE_NAME
    value = client.cookies[name].value
    context.add_cookies([{"name": name, "value": value, "url": address}])


def sign_in(context: BrowserContext, address: str, user: User) -> None:
    """Sign a browser in whose pages have no streams: these have tests of their own."""
    give_session(context, address, user)
    context.route("**/live/**", lambda route: route.abort())


@pytest.fixture(scope="session")
def server(redis_server: str) -> Iterator[str]:
    """Serve the console with uvicorn, from this process and its test database."""
    django_settings.REDIS_URL = redis_server
    app.conf.update(broker_url=redis_server)  # nudges are sent, and nobody takes them
    call_command("collectstatic", interactive=False, verbosity=0)
    from django.core.asgi import get_asgi_application

    from queries.views.console.live import below_django

    with serving(below_django(get_asgi_application())) as address:
        yield address


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """Serve an ASGI application with uvicorn; return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=port,
        log_level="warning",
        lifespan="off",
        timeout_graceful_shutdown=3,
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve()), name="web")
    thread.start()
    try:
        started = threading.Event()
        for _ in range(START_LIMIT_S * 20):
            if running.started or started.wait(0.05):
                break
        assert running.started, "the web server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = running.force_exit = True
        thread.join(START_LIMIT_S)


@pytest.fixture
def site(server: str, redis_server: str, transactional_db: None) -> Iterator[Site]:
    """Return the console over an empty database."""
    from queries.services.system.health import forget

    forget()
    publisher = redis.Redis.from_url(redis_server)
    yield Site(server, publisher)
    publisher.close()


@pytest.fixture
def stage(site: Site) -> Stage:
    """Return an empty installation, behind the console, whose clock shows our time."""
    empty = Stage()
    empty.now = timezone.now()
    return empty


@pytest.fixture
def busy(stage: Stage) -> Stage:
    """Return an installation in which a good deal has happened."""
    for name in ("delays", "broken", "idle"):
        stage.query(name)
    stage.up("delays")
    batches(stage.run("delays"), 30, until=timezone.now())
    stage.up("broken")
    stage.fail("broken", DIVIDE, batch=3)
    stage.query("fatal")
    stage.up("fatal")
    stage.fail("fatal", NO_SUCH_SOURCE)
    Team.objects.create(name="streams", created_at=stage.now)
    return stage


@dataclass
class Complaints:
    """What the browser complained about: errors, and what the policy forbade."""

    said: list[str] = field(default_factory=list)


Open = Callable[..., Page]


def too_wide(page: Page, addresses: Iterable[str]) -> list[tuple[str, int]]:
    """Return the pages that are wider than the viewport, with their widths."""
    viewport = page.viewport_size
    assert viewport is not None
    wide = []
    for address in addresses:
        page.goto(address)
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        # Of the viewport, not of the window: that of a phone grows with what it shows.
        if (width := page.evaluate("document.documentElement.scrollWidth")) > viewport["width"]:
            wide.append((address, width))
    return wide


@pytest.fixture
def complaints() -> Complaints:
    """Return the browser's complaints of this test."""
    return Complaints()


@pytest.fixture
def look(browser: Browser, site: Site, complaints: Complaints) -> Iterator[Open]:
    """Return what opens a page as a person: `look(user, "/queries/", dark=True)`."""
    contexts = []

    def open_page(user: User, address: str, **more: Any) -> Page:
        narrow, dark = more.pop("narrow", False), more.pop("dark", False)
        context = browser.new_context(
            base_url=site.address,
            viewport={"width": 390, "height": 844} if narrow else {"width": 1440, "height": 900},
            color_scheme="dark" if dark else "light",
            **more,
        )
        contexts.append(context)
        give_session(context, site.address, user)
        page = context.new_page()
        page.on(
            "console",
            lambda said: complaints.said.append(said.text) if said.type == "error" else None,
        )
        page.on("pageerror", lambda error: complaints.said.append(str(error)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def axe() -> str:
    """Return the source of axe-core, with the rules that it leaves out switched on."""
    source = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
    return source + ";axe.configure({rules: [{id: 'target-size', enabled: true}]});"
