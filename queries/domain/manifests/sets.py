"""A set of manifests as CI sends it: its owner, where it comes from, and what to do with it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from queries.domain.definitions.parsing import shape_problems
from queries.domain.definitions.spec import StrictForm
from queries.domain.errors import Invalid, Problem
from queries.domain.manifests.reading import value_problems
from queries.domain.masking import mask_text

#: Files of one set. More would hold the database's write lock for longer than a second.
MOST_FILES = 2000
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class SetSource(StrictForm):
    """Where a set comes from."""

    repository: str = Field(default="", max_length=500)
    commit: str = Field(default="", max_length=64)  # its full hash

    def text(self) -> str:
        """Return it as people read it; "" for neither."""
        return " at ".join(part for part in (self.repository, self.commit[:12]) if part)


class SetFile(StrictForm):
    """One file: its manifest, or its text, which may hold several."""

    path: str = Field(default="", max_length=500)
    manifest: dict[str, Any] | None = None
    text: str | None = None


class ApplySet(StrictForm):
    """What is asked of an apply."""

    owner: str
    source: SetSource = Field(default_factory=SetSource)
    values: dict[str, Any] = Field(default_factory=dict)
    manifests: list[SetFile] = Field(max_length=MOST_FILES)
    dry_run: bool = False
    prune: bool = False
    prune_running: bool = False


_SET: TypeAdapter[ApplySet] = TypeAdapter(ApplySet)


def parse_set(raw: Any) -> ApplySet:
    """Return a set; raise `Invalid` with each fault by its field."""
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
        yield Problem("owner", asked.owner[:200], "is not a valid name of an owner.", way_out)
    commit = asked.source.commit
    if commit and not _COMMIT.fullmatch(commit):
        way_out = "Send all of its 40 hexadecimal digits, or leave it out."
        yield Problem("source.commit", commit[:200], "is not a full commit hash.", way_out)
    yield from value_problems(asked.values)
    for index, file in enumerate(asked.manifests):
        if (file.manifest is None) == (file.text is None):
            way_out = "Send either manifest or text."
            given = "neither" if file.text is None else "manifest and text"
            yield Problem(
                f"manifests.{index}", file.path or given, "must hold one manifest.", way_out
            )
    if asked.prune_running and not asked.prune:
        way_out = "Send prune too, or neither."
        yield Problem("prune_running", "true", "does nothing without prune.", way_out)
