"""Show each change to a definition before saving it, and show it again if it is no longer the same.

The page contains the revision number from which editing began (`base`) and a digest of the change
that was shown; an attempt to save a different change shows that change first.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from headgate_ground.masking import mask
from queries.domain.definitions import parsing
from queries.domain.definitions.effects import Effect, strongest
from queries.domain.errors import Invalid
from queries.domain.sparks.pinned import FORMATS
from queries.models.applications import ApplicationRevision
from queries.models.definitions import QueryRevision
from queries.views.definitions.diffs import DiffLine, changes

Revision = QueryRevision | ApplicationRevision

#: What a change requires, in the review's words.
TAKES = {
    Effect.NONE: "Takes effect when saved; nothing restarts.",
    Effect.QUERY: "Takes effect after a restart of the query.",
    Effect.DRIVER: "Takes effect after a restart of the application, which replaces its driver.",
    Effect.CHECKPOINT: (
        "The checkpoint keeps the original value; changing {} requires a new checkpoint (a reset)."
    ),
}

#: For settings that a checkpoint does not keep, but that decide how it is written.
FORMAT = (
    "{} changes how checkpoints are written: a checkpoint written with another value may not "
    "continue. Try it in a preflight, or reset the query."
)

Parse = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Review:
    """What saving would change, and whether another user has saved in the meantime."""

    base: Revision  # the revision from which editing began
    newest: Revision
    digest: str
    lines: list[DiffLine]  # from the newest revision to the input
    theirs: list[DiffLine]  # from base to newest: what another user has saved
    seen: bool  # this exact change has already been shown
    effects: dict[str, Effect]  # the fields that would change, with the effect of each

    @property
    def stale(self) -> bool:
        """Return whether another user has saved since editing began."""
        return self.base.number != self.newest.number

    @property
    def takes(self) -> str:
        """Return what the change requires to take effect, and what it does to checkpoints."""
        formats = [name for name in self.effects if name.removeprefix("conf.") in FORMATS]
        said = f" {FORMAT.format(', '.join(formats))}" if formats else ""
        return self._takes + said

    @property
    def _takes(self) -> str:
        if (effect := strongest(self.effects)) is not Effect.CHECKPOINT:
            return TAKES[effect]
        kept = ", ".join(name for name, each in self.effects.items() if each is effect)
        rest = strongest({name: one for name, one in self.effects.items() if one is not effect})
        return f"{TAKES[effect].format(kept)} {TAKES[rest] if rest else ''}".strip()

    @property
    def may_save(self) -> bool:
        """Return whether to save: the change was shown, is not empty, and no one saved since."""
        return self.seen and not self.stale and bool(self.lines)


def review(
    data: QueryDict, revisions: tuple[Any, ...], spec: Mapping[str, Any], *, again: bool = False
) -> Review:
    """Return the review of a spec against the revisions (newest first).

    `again` makes the newest revision the new base: the user has seen what others saved.
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
        effects=(parsing.application_changes if own else parsing.query_changes)(newest.spec, after),
    )


def _changes(parse: Parse, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[DiffLine]:
    return changes(mask(normal(parse, before)), mask(normal(parse, after)))


def normal(parse: Parse, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with its defaults filled in, so that only the meaning is compared."""
    try:
        return parsing.as_json(parse(spec))
    except Invalid:  # an old form: compare it unchanged
        return dict(spec)
