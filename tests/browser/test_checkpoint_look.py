"""A checkpoint's pages in a real browser: both themes, narrow, and live."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from queries.models.checkpoints import Snapshot, SourceLag
from queries.models.definitions import Checkpoint
from tests.browser.conftest import Complaints, Open, Site, too_wide
from tests.checkpoints.forms import write_batch, write_checkpoint
from tests.scenarios.stage import Stage
from tests.web.batches import batches

pytestmark = pytest.mark.browser

PAGES = {
    "batches": "/queries/delays/checkpoint/",
    "batch": "/queries/delays/checkpoint/batches/37/",
    "files": "/queries/lates/checkpoint/batches/4/",
    "compare": "/queries/delays/checkpoint/compare/?one=12&other=37",
    "state": "/queries/delays/checkpoint/state/",
    "kept": "/queries/delays/checkpoint/kept/",
    "snapshot": "/queries/delays/snapshot/",
    "rewind": "/queries/delays/rewind/?batch=30",
    "reset": "/queries/delays/reset/?to=offsets&offsets=%7B%22flights%22%3A%7B%220%22%3A40%7D%7D",
    "clone": "/queries/delays/clone/",
}


@pytest.fixture
def root(stage: Stage, tmp_path: Path, settings: LazySettings) -> Path:
    """Return a checkpoint on disk of a query that has run for a while."""
    root = tmp_path / "cps" / "delays"
    settings.CHECKPOINTS_DIR = root.parent
    now = timezone.now()
    query = stage.query("delays", conf={"spark.sql.shuffle.partitions": "8"})
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    write_checkpoint(root, batches=range(41), source="kafka", store="zip", in_flight=True)
    stage.up("delays")
    for place, row in enumerate(batches(stage.run("delays"), 40, until=now, every_s=30, rows=10)):
        size = 100_000_000 + place * 4_000_000 + (place % 3) * 1_000_000
        row.body["stateOperators"] = [
            {"numRowsTotal": 90_000 + place * 800, "memoryUsedBytes": size, "numRowsUpdated": 810}
        ]
        row.state_rows = 90_000 + place * 800
        row.save()
    Snapshot.objects.create(
        checkpoint=query.checkpoints.get(),
        batch=31,
        location=f"file://{root.parent}/.headgate/delays.snapshots/20261121T100000-1a2b3c4d",
        bytes=48_300_000,
        taken_at=now - timedelta(hours=2),
        reason="before the release",
        pinned=True,
    )
    SourceLag.objects.create(query=query, source="flights", partition=0, earliest=30, seen_at=now)
    other = stage.query("lates")
    lates = root.parent / "lates"
    Checkpoint.objects.filter(query=other).update(location=f"file://{lates}")
    write_checkpoint(lates, batches=range(6), files_a_batch=3)
    return root


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_breaks_the_policy_or_bars_anybody(
    look: Open,
    root: Path,
    admin: User,
    axe: str,
    complaints: Complaints,
    tmp_path: Path,
    dark: bool,
) -> None:
    page = look(admin, "/", dark=dark)
    faults: list[str] = []
    for name, address in PAGES.items():
        page.goto(address)
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
        page.evaluate(axe)
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [
            f"{address} {fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
            for fault in found["violations"]
        ]
    assert not faults, "\n".join(faults)
    assert [said for said in complaints.said if "404" not in said] == []


def test_a_narrow_page_scrolls_only_downwards(look: Open, root: Path, admin: User) -> None:
    page = look(admin, "/", narrow=True)
    assert too_wide(page, PAGES.values()) == []


def test_the_list_shows_a_location_in_few_lines(look: Open, root: Path, admin: User) -> None:
    page = look(admin, "/checkpoints/")
    places = page.locator("td .location").all()
    assert places
    for where in places:
        box = where.bounding_box()
        assert box is not None
        assert box["width"] >= 160
        line = float(where.evaluate("node => parseFloat(getComputedStyle(node).fontSize)")) * 1.6
        assert box["height"] <= 6 * line


def test_a_new_batch_appears_by_itself(
    look: Open, root: Path, stage: Stage, viewer: User, site: Site
) -> None:
    page = look(viewer, "/queries/delays/checkpoint/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
    expect(page.get_by_text("In flight")).to_have_count(1)
    write_batch(root, 41, source="kafka")
    site.say(f"query:{stage.row('delays').pk}")
    expect(page.get_by_text("In flight")).to_have_count(0, timeout=60_000)
