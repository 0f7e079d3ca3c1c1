"""A set of manifests sent by CI: its owner, its source, and what to do with it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from headgate_ground.masking import mask_text
from queries.domain.code.git_references import GitRef
from queries.domain.definitions.parsing import shape_problems
from queries.domain.definitions.spec import StrictForm
from queries.domain.errors import Invalid, Problem
from queries.domain.manifests.reading import value_problems

#: Maximum files per set. More would hold the database's write lock for over a second.
MOST_FILES = 2000
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class SetSource(StrictForm):
    """The origin of a set."""

    repository: str = Field(default="", max_length=500)
    commit: str = Field(default="", max_length=64)  # full hash

    def text(self) -> str:
        """Return the origin in readable form; "" if both fields are empty."""
        return " at ".join(part for part in (self.repository, self.commit[:12]) if part)


class SetFile(StrictForm):
    """One file: its manifest, or its text, which may contain several manifests."""

    path: str = Field(default="", max_length=500)
    manifest: dict[str, Any] | None = None
    text: str | None = None


class ApplySet(StrictForm):
    """The request for an apply."""

    owner: str
    source: SetSource = Field(default_factory=SetSource)
    values: dict[str, Any] = Field(default_factory=dict)
    manifests: list[SetFile] = Field(max_length=MOST_FILES)
    dry_run: bool = False
    prune: bool = False
    prune_running: bool = False
    accept_state_change: bool = False  # start changes that silently alter the meaning of state
    require_checked: bool = False  # refuse queries whose SQL could not be checked
    #: As returned by a dry run: these branches and tags are not resolved again.
    resolved: tuple[GitRef, ...] = ()


_SET: TypeAdapter[ApplySet] = TypeAdapter(ApplySet)


def parse_set(raw: Any) -> ApplySet:
    """Return a set; raise `Invalid` with every error by field."""
    if not isinstance(raw, Mapping):
        way_out = "Send owner and manifests."
        raise Invalid([Problem("body", str(raw)[:200], "is not a JSON object.", way_out)])
    try:
        found = _SET.validate_python(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    problems = list(_problems(found))
    if problems:
        raise Invalid(problems)
    source = found.source.model_copy(update={"repository": mask_text(found.source.repository)})
    return found.model_copy(update={"source": source})


def _problems(asked: ApplySet) -> Iterable[Problem]:
    if not _OWNER.fullmatch(asked.owner):
        way_out = "Use 1 to 80 letters, digits and . _ / -, such as the repository's name."
        yield Problem("owner", asked.owner[:200], "is not a valid owner name.", way_out)
    commit = asked.source.commit
    if commit and not _COMMIT.fullmatch(commit):
        way_out = "Send all 40 hexadecimal digits, or omit it."
        yield Problem("source.commit", commit[:200], "is not a full commit hash.", way_out)
    yield from value_problems(asked.values)
    for index, file in enumerate(asked.manifests):
        if (file.manifest is None) == (file.text is None):
            way_out = "Send either manifest or text."
            given = "neither" if file.text is None else "manifest and text"
            yield Problem(
                f"manifests.{index}", file.path or given, "must contain one manifest.", way_out
            )
    if asked.prune_running and not asked.prune:
        way_out = "Send prune too, or omit both."
        yield Problem("prune_running", "true", "has no effect without prune.", way_out)
