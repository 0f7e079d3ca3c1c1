"""The packages that an application may require: names and versions only, no locations.

Wheels come from the installation's own index. A line that specifies a file, a URL, another index or
an editable project is rejected, because it would install something that no admin has provided.
"""

import re
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from queries.domain.definitions.spec import LONGEST_REQUIREMENTS as LONGEST
from queries.domain.errors import Problem

MOST_LINES = 200
_FIELD = "packages"
_VERSIONS = 'Write names with versions, one per line, such as "requests==2.32.3".'
_PATH = re.compile(r"\.{0,2}/|~|[A-Za-z]:[\\/]|.*\.(whl|zip|tar\.gz|tgz)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedRequirements:
    """The requirements in a text, and what is wrong with them."""

    lines: tuple[str, ...]  # normalised and sorted
    problems: tuple[Problem, ...]

    @property
    def text(self) -> str:
        """Return the normalised text; equal requirements give equal texts."""
        return "".join(f"{line}\n" for line in self.lines)


def read(text: str) -> ParsedRequirements:
    """Parse a requirements text; comments and empty lines are ignored."""
    if len(text) > LONGEST or text.count("\n") > MOST_LINES * 2:
        message = f"has more than {MOST_LINES} lines or {LONGEST:,} characters."
        size = f"{len(text):,} characters in {text.count(chr(10)) + 1:,} lines"
        return ParsedRequirements(
            (), (Problem(_FIELD, size, message, "List only packages that the code imports."),)
        )
    by_package: dict[str, str] = {}
    problems: list[Problem] = []
    for number, raw in enumerate(text.splitlines()):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        if not line:
            continue
        wish = _requirement(f"{_FIELD}.{number}", line)
        if isinstance(wish, Problem):
            problems.append(wish)
            continue
        # Two lines may name the same package if their markers differ.
        key = f"{canonicalize_name(wish.name)};{wish.marker or ''}"
        if key in by_package and by_package[key] != str(wish):
            message = "conflicts with another line that requires the same package."
            problems.append(
                Problem(f"{_FIELD}.{number}", line[:200], message, "Keep one of the two.")
            )
        by_package[key] = str(wish)
    if len(by_package) > MOST_LINES:
        message = f"names more than {MOST_LINES} packages."
        size = f"{len(by_package):,} packages"
        problems.append(Problem(_FIELD, size, message, "List only packages that the code imports."))
    return ParsedRequirements(tuple(sorted(by_package.values())), tuple(problems))


def _requirement(field: str, line: str) -> Requirement | Problem:
    shown = re.sub(r"://[^/@\s]*@", "://", line)[:200]  # remove passwords from URLs

    def refused(message: str, way_out: str = _VERSIONS) -> Problem:
        return Problem(field, shown, message, way_out)

    if any(not c.isprintable() and c != "\t" for c in line):
        plain = "".join(c if c.isprintable() else "�" for c in shown)
        return Problem(field, plain, "contains a control character.", _VERSIONS)
    if line.startswith("-"):
        return refused(
            "is an installer option.",
            "Remove it: the installation sets the index and cache, and only wheels are used.",
        )
    if "://" in line or re.match(r"(git|hg|svn|bzr)\+|file:", line):
        return refused("is a URL.", "Use the package name; its wheel comes from the index.")
    if _PATH.match(line):
        return refused("is a file or folder.", "Use the package name, or upload the code instead.")
    if line.endswith("\\"):
        return refused("continues on the next line.", "Write each requirement on one line.")
    if re.search(r"\s--\w", line):
        return refused("contains an option.", "Remove the option.")
    try:
        wish = Requirement(line)
    except InvalidRequirement:
        return refused("is not a valid requirement.")
    if wish.url:
        return refused("is a URL.", "Use the package name; its wheel comes from the index.")
    if len(str(wish.specifier)) > 500 or len(wish.name) > 200:
        return refused("is too long.")
    return wish
