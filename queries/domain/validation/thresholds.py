"""Check the thresholds of a query or of an alert rule."""

from collections.abc import Mapping, Sequence
from typing import Any

from queries.domain.definitions.spec import Threshold
from queries.domain.errors import Problem


def threshold_problems(thresholds: Sequence[Threshold]) -> list[Problem]:
    """Return what is wrong with these thresholds, by field ("thresholds.0.value")."""
    problems = []
    windows: set[tuple[str, int]] = set()
    for index, threshold in enumerate(thresholds):
        at = f"thresholds.{index}"
        if threshold.factor and threshold.figure != "batch_seconds":
            way_out = "Set the value instead, and leave the factor at 0."
            message = "applies only to batch_seconds."
            problems.append(Problem(f"{at}.factor", f"{threshold.factor:g}", message, way_out))
        elif threshold.factor and threshold.value:
            way_out = "Set one of them to 0."
            message = "cannot be combined with a value."
            problems.append(Problem(f"{at}.factor", f"{threshold.factor:g}", message, way_out))
        elif not threshold.factor and not threshold.value:
            way_out = "Set a value above 0."
            problems.append(Problem(f"{at}.value", "0", "is not a limit.", way_out))
        if (threshold.figure, threshold.window_minutes) in windows:
            message = "appears twice with the same window."
            problems.append(
                Problem(f"{at}.figure", threshold.figure, message, "Remove one of the two.")
            )
        windows.add((threshold.figure, threshold.window_minutes))
    return problems


def threshold_lines(thresholds: Sequence[Mapping[str, Any]]) -> str:
    """Format thresholds as lines to edit: "records_behind 1000000 10", "batch_seconds x2 10"."""
    lines = []
    for threshold in thresholds:
        limit = (
            f"x{threshold['factor']:.15g}"
            if threshold.get("factor")
            else f"{threshold.get('value', 0):.15g}"
        )
        lines.append(f"{threshold['figure']} {limit} {threshold.get('window_minutes', 10)}")
    return "\n".join(lines)


def read_threshold_lines(text: str) -> list[dict[str, str]]:
    """Return the thresholds that lines describe, unvalidated; the minutes are optional."""
    thresholds = []
    for line in filter(str.strip, text.splitlines()):
        figure, _, rest = line.strip().partition(" ")
        limit, _, minutes = rest.strip().partition(" ")
        threshold = {"figure": figure, "factor" if limit[:1] == "x" else "value": limit.lstrip("x")}
        if minutes:
            threshold["window_minutes"] = minutes.strip()
        thresholds.append(threshold)
    return thresholds
