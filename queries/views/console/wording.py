"""Labels and tones for states and quantities, the same on every page and fragment."""

import json
import math
from typing import Any

from queries.domain.reasons import ACTS, phrase
from queries.domain.states import GroupStatus, Verdict

#: Colour is used for state only. For each tone, its phases, verdicts, outcomes and other states.
_STATES = {
    "calm": "STOPPED IDLE ENDED SUPERSEDED CANCELLED LEFT",
    "busy": "PENDING STARTING STARTED STOPPING CATCHING_UP TRIED SAVED WRITTEN RESTARTED"
    " GOING_BACK",
    "ok": "RUNNING PROGRESSING LIVE ACTIVE GOOD",
    "done": "COMPLETED DONE RESOLVED CLOSED SUCCEEDED",
    "warn": "warning BACKOFF LAGGING NO_TELEMETRY WAITING FENCED REFUSED RETRY LIMITED ROLLED_BACK",
    "bad": "critical ON_HOLD FAILED UNREACHABLE STALLED QUERY_MISSING LOST AT_RISK DRIVER_ENDED"
    " TIMED_OUT OPEN POISON FATAL BAD KEPT",
}
TONES = {state: tone for tone, states in _STATES.items() for state in states.split()}

#: One sentence for each verdict, for use without evidence.
VERDICT_WORDS: dict[str, str] = {
    Verdict.PROGRESSING: "Commits batches as expected.",
    Verdict.IDLE: "Running, with no new data.",
    Verdict.CATCHING_UP: "Behind, and the backlog is falling.",
    Verdict.LAGGING: (
        "Input arrives faster than it is processed: batches take too long, or the backlog grows."
    ),
    Verdict.STALLED: "No commit, event or task for longer than expected.",
    Verdict.QUERY_MISSING: "The process is alive, but its JVM or its query is not.",
    Verdict.NO_TELEMETRY: "No telemetry arrives, but the query may still be working.",
    Verdict.WAITING: (
        "Waiting for its source: no response, an open transaction, or too few records."
    ),
}


def age_words(seconds: float) -> str:
    """Return an age in one unit: "now", "12 s", "4 min", "3 h", "9 d"; matches static/js/age.js."""
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "now"


def duration_words(ms: float | None) -> str:
    """Return a duration with at most three figures: "84 ms", "1.24 s", "12.4 s", "3 min 05 s"."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def size_words(count: float | None) -> str:
    """Format bytes as "812 B", "4.2 kB", "10.3 MB"."""
    if count is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def number_words(value: float | None) -> str:
    """Return a quantity with at most three figures and a unit: "9.4", "1.25k", "336k"."""
    if value is None or math.isnan(value) or math.isinf(value):
        return "–"
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{_three_figures(value / limit)}{unit}"
    return _three_figures(value)


def _three_figures(value: float) -> str:
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")


def rate_words(value: float | None) -> str:
    """Format rows per second in short form: "1.25k/s"; a dash if unknown."""
    text = number_words(value)
    return text if text == "–" else f"{text}/s"


def act_words(reason: str, *, subject: str = "", first: bool = False, after: str = "") -> str:
    """Return an action, worded to follow a user's name and precede an object: "olga started".

    An action on a definition or a failure group does not need a reason; `first` means that there
    was no definition before it, `after` is the group's new status.
    """
    if subject == "definition" and not reason:
        return "defined" if first else "changed"
    if subject == "group" and not reason:
        return "resolved a failure of" if after == GroupStatus.RESOLVED else "reopened a failure of"
    return ACTS.get(reason) or phrase(reason)


def offset_text(offset: Any) -> str:
    """Format an offset (JSON of any shape) compactly; "" if there is none."""
    if offset is None or isinstance(offset, str):
        return offset or ""
    return json.dumps(offset, separators=(", ", ": "), ensure_ascii=False)
