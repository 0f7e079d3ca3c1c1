"""Checks that a save may skip, each with the word used to report it.

A save never depends on another machine. Skipped checks are reported on the page, in a dry run, in
an apply and by REST, and are stored with the revision.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from queries.domain.errors import Problem


class Check(StrEnum):
    """A check that needs something outside the definition."""

    word: str  # shown by the pages, REST and the command when it was skipped

    def __new__(cls, code: str, word: str = "") -> Self:
        """Return a member whose value is only its code."""
        member = str.__new__(cls, code)
        member._value_, member.word = code, word
        return member

    SQL = "sql", "SQL not checked"
    NAMES = "names", "Column names not checked"
    STATE = "state", "State change not checked"
    PARTITIONS = "partitions", "Partitions not checked"
    CODE = "code", "Code not checked"
    PLACE = "place", "Location not checked"


@dataclass(frozen=True, slots=True)
class Skip:
    """A check that was skipped, and why."""

    check: Check
    why: str
    again: bool = False  # it will be made later, once the service that makes it is available

    @property
    def word(self) -> str:
        """Return its name for users."""
        return self.check.word

    @property
    def text(self) -> str:
        """Return the skipped check as one line."""
        return f"{self.word}: {self.why}"


def unchecked_sql(skips: Iterable[Skip]) -> list[Problem]:
    """Return the problem of SQL that was not checked, for a save that requires the check."""
    return [
        Problem(
            "sql",
            "",
            f"was not checked, and the request requires the check. {skip.why}",
            "Send it again later." if skip.again else "Omit require_checked (--require-checked).",
        )
        for skip in skips
        if skip.check is Check.SQL
    ]


def as_json(skips: Iterable[Skip]) -> list[dict[str, Any]]:
    """Return the skipped checks in the form that revisions store and REST returns."""
    return [asdict(skip) | {"word": skip.word} for skip in skips]


def from_json(stored_skips: Iterable[Mapping[str, Any]]) -> list[Skip]:
    """Return the skips stored with a revision, ignoring those from a later release."""
    checks = set(Check)
    known_skips = [stored_skip for stored_skip in stored_skips if stored_skip["check"] in checks]
    return [
        Skip(Check(stored_skip["check"]), str(stored_skip["why"]), bool(stored_skip["again"]))
        for stored_skip in known_skips
    ]
