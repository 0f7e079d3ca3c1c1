"""A listener of a user's that sleeps makes Spark drop events; the pages say how many, exactly.

Seen as a person sees it: the whole system, a real driver, a browser. Spark's own count is read
from the driver's metrics address, which no code of ours has a hand in.
"""

import json
import os
import re
import sqlite3
import urllib.request
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from controlplane import jws
from tests.faults.shared import code_of, data_of, run_with
from tests.faults.system import System

pytestmark = [
    pytest.mark.faults,
    pytest.mark.browser,
    pytest.mark.spark,
    pytest.mark.redis,
    pytest.mark.timeout(900),
]

BATCHES = 30
LIMIT_MS = 120_000  # generous: the machine may be busy
SLEEPER = """
import time
from pyspark.sql.streaming import StreamingQueryListener

class Sleeper(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryProgress(self, event): time.sleep(3)
    def onQueryTerminated(self, event): pass
"""


@pytest.fixture(params=["private", "fallback"])
def mode(request: pytest.FixtureRequest) -> str:
    """Return how the driver listens."""
    return str(request.param)


@pytest.fixture
def system(mode: str, shared_system: System) -> System:
    """Return the shared system, with a sleeping listener's application in it."""
    if mode == "fallback":
        run_with(shared_system, HEADGATE_FORCE_LISTENER_FALLBACK="1")
    source = data_of(shared_system) / f"seen-{mode}"
    source.mkdir()
    (code_of(shared_system) / "drowsy.py").write_text(SLEEPER)
    for number in range(BATCHES):  # one a batch, then the source is dry and the counter rests
        (source / f"{number:03}.json").write_text(json.dumps({"flight": number}))
    _define(shared_system, mode, source)
    return shared_system


def _define(system: System, mode: str, source: Path) -> None:
    application = {
        "name": f"watched-{mode}",
        "spec": {
            "master": "local[2]",
            "memory": "1g",
            "conf": {"spark.scheduler.listenerbus.eventqueue.streams.capacity": "5"},
            "python_path": [str(code_of(system))],
            "listeners": ["drowsy:Sleeper"],
        },
    }
    assert system.call("POST", "applications/", application)[0] == 201
    flights = {
        "name": "flights",
        "format": "json",
        "schema": "flight INT",
        "options": {"path": str(source), "maxFilesPerTrigger": "1"},
    }
    query = {
        "name": f"seen-{mode}",
        "application": f"watched-{mode}",
        "spec": {
            "kind": "sql",
            "sources": [flights],
            "sql": "SELECT * FROM flights",
            "sink": {"format": "noop"},
            "trigger": {"kind": "processing_time", "interval": "300 milliseconds"},
        },
    }
    status, body = system.call("POST", "queries/", query)
    assert status == 201, body


def _sparks_count(system: System, mode: str) -> int:
    """Return the dropped events of Spark's own queue in the newest driver, from its own metrics."""
    epochs = (system.home / "drivers" / f"watched-{mode}").glob("*/control/spec.json")
    spec = max(epochs, key=lambda spec: int(spec.parent.parent.name))  # a dead one is replaced
    given = json.loads(spec.read_text())
    token = jws.token(bytes.fromhex(given["ui_key"]), now=datetime.now(UTC))
    asked = urllib.request.Request(
        f"http://127.0.0.1:{given['ui_port']}/metrics/json/",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(asked, timeout=30) as told:
        counters: dict[str, Any] = json.loads(told.read())["counters"]
    [count] = [
        value["count"]
        for name, value in counters.items()
        if name.endswith("queue.streams.numDroppedEvents")
    ]
    return int(count)


def _at_rest(system: System, mode: str) -> Any:
    """Return the query's losses once all batches are there and Spark's counter is ours."""
    body = system.query(f"seen-{mode}")
    lost = body["dropped_events"]
    progress = body["last_progress"]
    if not progress or progress["batch_id"] < BATCHES - 1 or not lost["bus"]:
        return None
    whole = lost["missing_batches"] == lost["repaired"] and lost["bus"] == _sparks_count(
        system, mode
    )
    return lost if whole and len(system.batches(f"seen-{mode}")) == BATCHES else None


def _agreed(system: System, mode: str, shown: Locator) -> Any:
    """Return the query's losses while page, API and Spark's own counter give one number.

    Spark posts to its bus now and then without a query, so the number may still rise by one.
    """
    lost = system.query(f"seen-{mode}")["dropped_events"]
    same = lost["bus"] == _sparks_count(system, mode)
    number = rf"(?<![\d,]){lost['bus']:,}(?![\d,])"
    return lost if same and re.search(number, shown.inner_text()) else None


def _lost_earlier(system: System) -> int:
    """Return what drivers before the newest lost of the same queue."""
    with closing(sqlite3.connect(system.home / "headgate.sqlite3", timeout=20)) as database:
        [(count,)] = database.execute(
            "SELECT coalesce(sum(count), 0) FROM listeners_droppedevents WHERE queue = 'streams'"
            " AND driver < (SELECT max(driver) FROM listeners_droppedevents)"
        )
    return int(count)


def _sign_in(browser: Browser, system: System) -> Page:
    password = re.search(r"login admin / (\S+)", system.said)
    assert password is not None
    page = browser.new_page(base_url=system.base, viewport={"width": 1440, "height": 1000})
    page.goto("/login/")
    page.locator("input[name=username]").fill("admin")
    page.locator("input[name=password]").fill(password[1])
    page.locator("input[name=password]").press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible(timeout=LIMIT_MS)
    return page


def _keep(page: Page, name: str, folder: Path) -> None:
    """Keep a picture for whoever wants to look: HEADGATE_SCREENSHOTS names the folder."""
    folder = Path(os.environ.get("HEADGATE_SCREENSHOTS", folder))
    page.screenshot(path=folder / f"{name}.png", full_page=True)


def test_the_pages_name_the_slow_listener_and_show_sparks_exact_count(
    system: System, mode: str, browser: Browser, tmp_path: Path
) -> None:
    system.verb(f"seen-{mode}", "start")
    lost = system.wait("all batches, and a counter at rest", lambda: _at_rest(system, mode))
    assert system.batches(f"seen-{mode}") == list(
        range(BATCHES)
    )  # ours lost none, or all came back
    assert lost["outbox"] == 0
    if mode == "private":
        assert (lost["missing_batches"], lost["repaired"]) == (0, 0)
    else:
        assert 0 < lost["repaired"] == lost["missing_batches"] <= lost["bus"]

    page = _sign_in(browser, system)
    page.goto(f"/applications/watched-{mode}/")
    listening = page.locator("section[aria-labelledby=listening]")
    sleeper = listening.get_by_role("row").filter(has_text="drowsy:Sleeper")
    expect(sleeper).to_contain_text("Slow")
    streams = listening.get_by_role("row").filter(has_text="streams")
    count = streams.locator("td").first
    system.wait("the count on the page", lambda: _agreed(system, mode, count))
    expect(streams).to_contain_text("5")
    if mode == "private":
        expect(listening).to_contain_text("private: other listeners cannot cause event loss")
        ours = listening.get_by_role("row").filter(has_text="Headgate's queue")
        expect(ours.locator("td").first).to_have_text("0")
    else:
        expect(listening).to_contain_text("fallback: one per session, with repair")
        repaired = f"{lost['repaired']:,} repaired"
        expect(listening).to_contain_text(repaired, timeout=LIMIT_MS)  # of its next heartbeat
    _keep(page, f"slow-listener-{mode}-application", tmp_path)

    page.goto(f"/queries/seen-{mode}/")
    head = page.locator(".query-state")
    lost = system.wait("the count on the page", lambda: _agreed(system, mode, head))
    expect(head).to_contain_text(f"{lost['bus']:,} events dropped by Spark's listener bus")
    expect(head).to_contain_text(
        f"{lost['missing_batches']:,} batches missing, {lost['repaired']:,} repaired"
        if lost["missing_batches"]
        else "No batches are missing."
    )
    everywhere = lost["bus"] + _lost_earlier(system)
    expect(page.locator("#system")).to_contain_text(f"{everywhere:,} events dropped")
    _keep(page, f"slow-listener-{mode}-query", tmp_path)
    page.close()
