"""A template that shows what was measured before shows when it was."""

import re
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"

#: What a template takes measured figures from, and the times one of which it has to show with them.
MEASURED = {
    r"\blag\.(?!errors|topics|gaps|certain|current)": ("lag.seen_at",),
    r"\bprogress\.(?!timestamp)": ("progress.timestamp", "progress.at"),
    r"\btelemetry\.heartbeat\.(?!mode)": ("telemetry.at",),
    r"\badvice\.(?:batches|cost|rate)": ("found.measured_at",),
    r"\boperator\.(?:rate|used|percentiles_ms)": ("operator.until",),
    r"\bline\.(?:memory_bytes|updated|dropped_late)\b": ("reported_at",),
}
_SHOWN = re.compile(r"{{(.+?)}}")
_TIMES = re.compile(r"{% (?:age|moment) (\S+)[^%]*%}|{{ (\S+)\|date:")


def _templates() -> list[Path]:
    return sorted(TEMPLATES.rglob("*.html"))


@pytest.mark.parametrize("source", MEASURED)
def test_what_was_measured_before_is_shown_with_its_time(source: str) -> None:
    found = 0
    for template in _templates():
        text = template.read_text()
        if not any(re.search(source, shown) for shown in _SHOWN.findall(text)):
            continue
        found += 1
        times = {name or other for name, other in _TIMES.findall(text)}
        wanted = MEASURED[source]
        assert any(time.endswith(wanted) for time in times), (template, wanted)
    assert found, "no template shows it any more: take it out of the list"
