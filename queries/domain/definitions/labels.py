"""Labels of applications and queries, and selectors such as `team=data,phase!=STOPPED`.

A selection is a tuple of terms, all of which must be true. Its written forms are the filters of
lists and of the lineage (`parse_filters`), the selectors of bulk requests (`parse_selector`), and
the stored selectors of rules and maintenance windows (`queries.domain.alerts.forms`). The
database applies one in `queries.selectors.supervision.query_filters`; `matches` does so in memory.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate_ground.labels import LABEL, MOST_LABELS
from queries.domain.errors import Invalid, Problem
from queries.domain.former_names import use_instead
from queries.domain.states import Desired, Phase, Verdict


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
    """Parse labels: `name=value`, separated by spaces, commas or newlines.

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
    """Return the labels as users write them, sorted by name."""
    return " ".join(f"{name}={labels[name]}" for name in sorted(labels))


def searched_labels(texts: Iterable[str]) -> dict[str, str | None]:
    """Return the labels to search for: `team=data`, `team=` for no value, `team` for any (None)."""
    parts = (text.strip().partition("=") for text in texts)
    return {name: value if equals else None for name, equals, value in parts if name}


#: What a term of a bulk request may refer to besides labels, with the values if they are known.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "name": (),
    "application": (),
    "team": (),  # the application's, or the label of this name
    "pool": (),
    "phase": tuple(Phase),
    "desired": tuple(Desired),
    "health": tuple(Verdict),
}
MOST_TERMS = 16
_TERM = re.compile(r"([a-z0-9](?:[a-z0-9._/-]{0,61}[a-z0-9])?)\s*(!?=)\s*([^=!]*)")
#: Fields of lists by their parameter, where the names differ: a list's team has no label.
_PARAMETERS = {"q": "search", "team": "owner"}


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: a field or a label is, or is not, one of these values."""

    name: str
    values: tuple[str, ...]  # "": the label is missing
    is_not: bool = False
    is_label: bool = False  # a label may have the name of a field


Selection = tuple[Term, ...]


def terms(
    labels: Mapping[str, str | None] | None = None, **fields: str | Iterable[str]
) -> Selection:
    """Return the conditions on these fields and labels; an empty field has none.

    A field is one of its values; a label's value "" means that it is missing, None any value.
    """
    several = {
        name: (value,) if isinstance(value, str) else tuple(value) for name, value in fields.items()
    }
    return (
        *(Term(name, values) for name, values in several.items() if any(values)),
        *(
            Term(name, (value or "",), is_not=value is None, is_label=True)
            for name, value in (labels or {}).items()
        ),
    )


def parse_filters(sent: Mapping[str, str | Sequence[str]]) -> Selection:
    """Return the selection in the parameters of a list's address; each may have several values.

    The parameter `label` has labels as `searched_labels` reads them, separated by spaces.
    """
    given = {
        name: value.replace("\x00", "") if isinstance(value, str) else value
        for name, value in sent.items()
    }
    labels = given.pop("label", ())
    texts = labels.split() if isinstance(labels, str) else labels
    fields = {_PARAMETERS.get(name, name): value for name, value in given.items()}
    return terms(searched_labels(texts), **fields)


def parse_selector(text: str) -> Selection:
    """Return the terms of a selector such as `team=data,phase!=STOPPED`.

    Terms are separated by commas; `a|b` means one of several values. A word that is not in `FIELDS`
    is a label of the query or of its application. Raises `Invalid` for each invalid term, or if
    there are none.
    """
    problems: list[Problem] = []
    terms = []
    for part in text.split(","):
        found = _TERM.fullmatch(part.strip())
        if found is None:
            way_out = (
                "Write name=value or name!=value, separated by commas: team=data,phase!=STOPPED."
            )
            problems.append(Problem("selector", part[:200], "is not a valid condition.", way_out))
            continue
        name, values = found[1], tuple(one.strip() for one in found[3].split("|"))
        known = FIELDS.get(name, ())
        for one in values:
            if known and one not in known:
                way_out = use_instead(one, known) or f"Use {', '.join(known)}."
                problems.append(
                    Problem("selector", f"{name}={one}"[:200], "is not known.", way_out)
                )
        terms.append(Term(name, values, found[2] == "!=", name not in FIELDS))
    if len(terms) > MOST_TERMS:
        way_out = f"Use at most {MOST_TERMS} conditions."
        problems.append(Problem("selector", str(len(terms)), "are too many conditions.", way_out))
    if problems:
        raise Invalid(problems)
    return tuple(terms)


def matches(selection: Selection, fields: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether all terms are true; `fields` has every field that the selection may name."""
    return all(
        ((labels.get(term.name, "") if term.is_label else fields[term.name]) in term.values)
        is not term.is_not
        for term in selection
    )
