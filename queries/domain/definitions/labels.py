"""Labels of applications and queries: `team=data`, as users write them and search for them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from headgate_ground.labels import LABEL, MOST_LABELS
from queries.domain.errors import Invalid, Problem


def parse_labels(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return labels; raise `Invalid` if one does not follow Kubernetes' rules."""
    problems = [
        Problem(
            f"labels.{name}"[:200],
            str(value)[:200],
            "is not a valid label.",
            "Use 1 to 63 lower-case letters, digits and . _ / - for name and value.",
        )
        for name, value in raw.items()
        if not (LABEL.fullmatch(str(name)) and LABEL.fullmatch(str(value)))
    ]
    if len(raw) > MOST_LABELS:
        way_out = f"Use at most {MOST_LABELS} labels."
        problems.append(Problem("labels", str(len(raw)), "are too many labels.", way_out))
    if problems:
        raise Invalid(problems)
    return {str(name): str(value) for name, value in raw.items()}


def read_labels(text: str) -> dict[str, str]:
    """Return the labels in a text: `name=value`, separated by spaces, commas or newlines.

    Raises `Invalid` if a label has no value, is repeated, or is not valid.
    """
    labels: dict[str, str] = {}
    problems = []
    for pair in re.split(r"[\s,]+", text.strip()) if text.strip() else []:
        name, equals, value = pair.partition("=")
        if not equals:
            way_out = "Write name=value: team=data."
            problems.append(Problem("labels", pair[:200], "has no value.", way_out))
        elif name in labels:
            problems.append(Problem("labels", pair[:200], "appears twice.", "Keep one of the two."))
        labels[name] = value
    if problems:
        raise Invalid(problems)
    return parse_labels(labels)


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as users write them, sorted by name."""
    return " ".join(f"{name}={labels[name]}" for name in sorted(labels))


def searched_labels(texts: Iterable[str]) -> dict[str, str | None]:
    """Return the labels to search for: `team=data`, `team=` for no value, `team` for any (None)."""
    parts = (text.strip().partition("=") for text in texts)
    return {name: value if equals else None for name, equals, value in parts if name}
