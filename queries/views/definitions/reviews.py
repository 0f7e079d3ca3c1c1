"""A change of a definition is shown before it is saved, and shown again if it changed since.

The page carries the number of the revision that the editing began from (`base`) and a digest
of what was shown; saving anything else than what was shown shows that first.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from queries.domain.definitions import parsing
from queries.domain.errors import Invalid
from queries.domain.masking import mask
from queries.models.applications import ApplicationRevision
from queries.models.definitions import QueryRevision
from queries.views.definitions.diffs import DiffLine, changes

Revision = QueryRevision | ApplicationRevision

Parse = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Review:
    """What saving would change, and whether somebody else saved in between."""

    base: Revision  # what the editing began from
    newest: Revision
    digest: str
    lines: list[DiffLine]  # from the newest revision to what is typed
    theirs: list[DiffLine]  # from base to newest: what somebody else saved
    seen: bool  # this very change has been shown already

    @property
    def stale(self) -> bool:
        """Tell whether somebody else saved after the editing began."""
        return self.base.number != self.newest.number

    @property
    def may_save(self) -> bool:
        """Tell whether to save now: shown, not empty, and nobody came in between."""
        return self.seen and not self.stale and bool(self.lines)


def review(
    data: QueryDict, revisions: tuple[Any, ...], spec: Mapping[str, Any], *, again: bool = False
) -> Review:
    """Return the review of a spec against the revisions (newest first).

    `again` takes the newest revision as the new base: the person has seen what others saved.
    """
    newest = revisions[0]
    number = data.get("base", "")
    base = next((row for row in revisions if str(row.number) == number), newest)
    base = newest if again else base
    own = isinstance(newest, ApplicationRevision)
    parse: Parse = parsing.parse_application if own else parsing.parse_query
    after = normal(parse, spec)
    digest = hashlib.sha256(json.dumps([newest.number, after], sort_keys=True).encode()).hexdigest()
    return Review(
        base=base,
        newest=newest,
        digest=digest,
        lines=_changes(parse, newest.spec, after),
        theirs=_changes(parse, base.spec, newest.spec),
        seen=data.get("reviewed") == digest,
    )


def _changes(parse: Parse, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[DiffLine]:
    return changes(mask(normal(parse, before)), mask(normal(parse, after)))


def normal(parse: Parse, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with its defaults filled in, so that only meaning is compared."""
    try:
        return parsing.as_json(parse(spec))
    except Invalid:  # an old form: compare it as it stands
        return dict(spec)
