"""Results of preflights and state inspections: right in both themes and for the policy."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from queries.domain.probes.questions import ProbeResult
from queries.domain.reasons import Because, Detail
from queries.domain.sparks import PINS, Written, as_json, pinned_by
from queries.domain.states import OperationOutcome, Verb
from queries.services.definitions import catalog
from tests.browser.conftest import Complaints, Open, Site
from tests.web.test_probes import JUDGED, SPEC, STATE, _ended

pytestmark = pytest.mark.browser

REFUSED: dict[str, Any] = {
    "attempt": "replay",
    "label": "The newest batch of the checkpoint, executed again",
    "end": "failed",
    "title": "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE: Provided key schema does not match existing "
    "state key schema.",
    "category": "checkpoint incompatible",
    "meaning": "The state in the checkpoint was written by a different version of this query: "
    "keys, aggregates, operators or their types have changed.",
    "way_out": "Go back to the earlier revision, or start the new form on a new checkpoint.",
    "root_cause": "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match "
    "existing state key schema.\nExisting schema=StructType(carrier); provided schema=StructType("
    "carrier, origin).",
    "batch": None,
    "rows": None,
    "ms": 232,
}
SKIPPED = {
    "attempt": "fresh",
    "label": "New data at the source",
    "end": "skipped",
    "batch": None,
    "rows": None,
    "ms": 0,
}


def _upgrade() -> dict[str, Any]:
    """Return what a change from Spark 4.3 to 4.2 reports."""
    pins = {key: PINS[key].new for key in pinned_by("4.3")}
    held = Written(conf=pins, operators=("dedupe",))
    return {**as_json(held, held, "4.2", "4.3"), "plan": ["deduplication"] * 2}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_results_bar_nobody_in_either_theme(
    look: Open,
    site: Site,
    author: User,
    axe: str,
    complaints: Complaints,
    dark: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = catalog.create_query(name="ticks", spec=SPEC, actor="aude", now=timezone.now())
    fresh = {**SKIPPED, "end": "passed", "batch": 42, "rows": 860, "ms": 510}
    differs = {**JUDGED, "tries": [*JUDGED["tries"], fresh]}
    failed = {**JUDGED, "verdict": "failed", "tries": [REFUSED, SKIPPED], "pinned": []}
    arguments = {"spec": SPEC, "revision": 1}
    numbers = {name: STATE[name] for name in ("operator", "rows", "bytes")}
    rows = [{"partition": n, "rows": 900 + n * 137, "bytes": n * 9000 + 99} for n in range(4)]
    seen = _ended(ticks, Verb.XRAY, result={**numbers, "partitions": rows, "batch": 41})
    answer = ProbeResult("Reading the state", done=True, state=STATE)
    probing = "queries.services.probes.probe_steps."
    monkeypatch.setattr(probing + "probe_of", lambda operation: operation)
    monkeypatch.setattr(probing + "read_result", lambda driver, *, launcher: answer)
    shown = {
        "differs": _ended(
            ticks,
            Verb.PREFLIGHT,
            arguments=arguments,
            result={"preflight": differs, "compared_with": 1},
        ),
        "failed": _ended(
            ticks,
            Verb.PREFLIGHT,
            arguments={"spec": SPEC},
            result={"preflight": failed},
            outcome=OperationOutcome.FAILED,
            detail=Because(Detail.STEP, {"note": f"{REFUSED['label']}: {REFUSED['title']}"}),
        ),
        "upgrade": _ended(
            ticks,
            Verb.PREFLIGHT,
            arguments={"spec": SPEC, "application_spec": {"spark": "4.2"}},
            result={"preflight": {**JUDGED, "verdict": "passed", "spark": _upgrade()}},
        ),
    }
    pages = {name: f"/operations/{row.uuid}/" for name, row in shown.items()}
    pages |= {
        "x-ray": f"/operations/{seen.uuid}/",
        "rows": f"/queries/ticks/x-ray/{seen.uuid}/",
        "new x-ray": "/queries/ticks/x-ray/",
        "edit": "/queries/ticks/edit/",
        "spark": "/applications/ticks/spark/?to=4.2",
        "definition": "/queries/ticks/definition/",
    }
    page = look(author, "/", dark=dark)
    faults: list[str] = []
    for name, address in pages.items():
        page.goto(address)
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
        page.evaluate(axe)
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [
            f"{name}: {each['id']} {each['nodes'][0]['html'][:200]}" for each in found["violations"]
        ]
    assert "\n".join(faults) == ""
    assert complaints.said == []
