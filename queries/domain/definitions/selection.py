"""Select queries with a text such as `team=data,phase!=STOPPED`.

Terms are separated by commas, and all of them must be true; `a|b` means one of several values. A
word that is not in `FIELDS` is a label of the query or of its application.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from queries.domain.errors import Invalid, Problem
from queries.domain.states import Desired, Phase, Verdict

#: What a term may refer to besides labels, with the possible values if they are known.
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


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: a field or a label is, or is not, one of these values."""

    name: str
    values: tuple[str, ...]  # "": the label is missing
    is_not: bool = False


def parse_selector(text: str) -> tuple[Term, ...]:
    """Return a selector's terms; raise `Invalid` for each invalid term, or if there are none."""
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
        problems += [
            Problem("selector", f"{name}={one}"[:200], "is not known.", f"Use {', '.join(known)}.")
            for one in values
            if known and one not in known
        ]
        terms.append(Term(name, values, found[2] == "!="))
    if len(terms) > MOST_TERMS:
        way_out = f"Use at most {MOST_TERMS} conditions."
        problems.append(Problem("selector", str(len(terms)), "are too many conditions.", way_out))
    if problems:
        raise Invalid(problems)
    return tuple(terms)
