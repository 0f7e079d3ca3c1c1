"""The pages of lag and loss: right in both themes and narrow, and live."""

import os
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from queries.domain.kafka.retention import Retention
from queries.domain.protocol import RunError
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.history import Failure
from queries.services.kafka import go_on_after_loss as procedure
from queries.services.kafka import lag
from tests.browser.conftest import Complaints, Open, Site, too_wide
from tests.conftest_brokers import Brokers, MakeQuery, brokers, make, said
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.browser

__all__ = ["brokers", "make"]

LOST = RunError(
    "",
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
    "Some data may have been lost because they are not available in Kafka any more",
    "Could not read records in offset [100, 180) for topic partition flights-0",
)
PAGES = ("/", "/queries/", "/queries/delays/lag/", "/queries/counts/lag/", "/queries/counts/go-on/")


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.BROKER_HOSTS = ["*"]  # brokers of queries that no run has read from yet


@pytest.fixture
def behind(
    stage: Stage, make: MakeQuery, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    """A query that is behind and at risk, and one that has lost data and failed on it."""
    now = timezone.now()
    five = {number: 52_000 + 100 * number for number in range(5)}
    make("delays", committed=five)
    counts = make("counts", server="two:9092")
    written = now - timedelta(minutes=50)
    kept = Retention(ms=4 * 3_600_000, bytes=1_000_000_000)
    for seconds in (30, 0):  # two looks tell rates
        ends = {number: (0, at + 4_000 - 40 * seconds) for number, at in five.items()}
        ends[3] = (0, 71_000)
        brokers.said["one:9092"] = said(ends, written=written, retention=kept)
        brokers.said["two:9092"] = said({0: (180, 300), 1: (0, 100)}, written=written)
        lag.look_at_sources(now=now - timedelta(seconds=seconds), readers=brokers)
    look = partial(lag.look_at_sources, readers=brokers)
    monkeypatch.setattr(procedure, "look_at_sources", look)
    common: dict[str, Any] = {"query": counts, "noticed_at": now}
    Loss.objects.create(
        kind=LossKind.RETENTION,
        source="flights",
        partition=1,
        from_offset=20,
        to_offset=61,
        offsets=41,
        records=41,
        accepted_by="otto",
        accepted_at=now,
        **common,
    )
    Loss.objects.create(kind=LossKind.LATE, source="dedupe 0", day=now.date(), records=7, **common)
    stage.start("counts")
    stage.ready("counts")
    stage.fail("counts", LOST)
    return stage


def _kept(page: Page, name: str) -> None:
    """Keep a picture where HEADGATE_PICTURES names a folder."""
    if folder := os.environ.get("HEADGATE_PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_of_lag_bars_anybody(
    look: Open, behind: Stage, admin: User, axe: str, complaints: Complaints, dark: bool
) -> None:
    page = look(admin, "/", dark=dark)
    failure = Failure.objects.get()
    faults: list[str] = []
    for address in (*PAGES, f"/failures/{failure.pk}/"):
        page.goto(address)
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        page.evaluate(axe)
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [
            f"{address} {fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
            for fault in found["violations"]
        ]
        _kept(page, f"{address.strip('/').replace('/', '-') or 'overview'}-{dark}")
    assert not faults, "\n".join(faults)
    assert complaints.said == []


def test_a_narrow_page_of_lag_scrolls_only_downwards(
    look: Open, behind: Stage, admin: User
) -> None:
    page = look(admin, "/", narrow=True)
    assert too_wide(page, PAGES) == []


def test_a_look_at_the_broker_moves_the_numbers_on_an_open_page(
    look: Open, behind: Stage, site: Site, viewer: User
) -> None:
    page = look(viewer, "/queries/delays/lag/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
    row = SourceLag.objects.get(query__name="delays", partition=0)
    SourceLag.objects.filter(pk=row.pk).update(latest=(row.committed or 0) + 123_456)
    site.say(f"lag:{row.query_id}")
    expect(page.locator(f"#sources-{row.query_id}")).to_contain_text("123,456", timeout=60_000)
