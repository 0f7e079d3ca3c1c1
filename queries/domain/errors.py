"""Errors that a user can cause or needs to know about, each with a message and a remedy.

HeadgateError
├── Invalid            the input cannot work (422)
├── NotAllowed         the state or the actor's rights forbid it now (409 / 403)
│   ├── Forbidden
│   └── SignInRefused    single sign-on does not let this user in (403)
├── Conflict           something else has changed it, uses it or holds it (409)
│   └── StaleRevision  If-Match names an older revision (412)
├── Missing            it does not exist (404)
├── TooMany            too many requests within a minute (429, try again)
└── Unavailable        a part of the system is down (503)
    └── Busy           the database is locked by other writers (503, try again)
"""

from collections.abc import Iterable
from dataclasses import dataclass

#: Maximum number of problems reported for one input: as many as a person will read.
MOST_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in an input: the field, the given value, the problem and the remedy."""

    field: str  # dotted path in the JSON form: "sources.0.options.path"
    value: str  # as given, masked where secret, at most 200 characters
    message: str
    way_out: str = ""
    line: int | None = None  # where in a text of several lines, from 1; None: not known
    column: int | None = None
    connector: str = ""  # the one whose absence from the application is the problem; not in REST

    def sentence(self) -> str:
        """Return the problem as one line of text."""
        way_out = f" {self.way_out}" if self.way_out else ""
        return f"{self.field}: {self.message}{way_out}"


def in_words(problems: Iterable[Problem]) -> str:
    """Return the problems that prevent a start or a message as one string; "" if there are none."""
    return " ".join(
        f"{problem.value} {problem.message} {problem.way_out}".strip() for problem in problems
    )


class HeadgateError(Exception):
    """Something went wrong."""

    code = "error"

    def __init__(self, message: str = "", *, way_out: str = "") -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.way_out = way_out
        super().__init__(f"{self.message} {way_out}".strip())


class Invalid(HeadgateError):
    """The definition has problems."""

    code = "invalid"

    def __init__(self, problems: tuple[Problem, ...] | list[Problem]) -> None:
        self.count = len(problems)
        self.problems = tuple(problems[:MOST_PROBLEMS])
        super().__init__("; ".join(problem.sentence() for problem in self.problems))


class NotAllowed(HeadgateError):
    """This is not possible in the current state."""

    code = "not-allowed"


class Forbidden(NotAllowed):
    """Your rights do not allow this."""

    code = "forbidden"


class SignInRefused(NotAllowed):
    """Single sign-on did not let you in."""

    code = "sign-in-refused"


class Conflict(HeadgateError):
    """Something else has changed this, uses it or holds it."""

    code = "conflict"


class StaleRevision(Conflict):
    """The definition has changed since you read it."""

    code = "stale-revision"


class Missing(HeadgateError):
    """This does not exist."""

    code = "missing"


class TooMany(HeadgateError):
    """You have sent too many requests within a minute."""

    code = "too-many-requests"

    def __init__(self, message: str = "", *, retry_after_s: int = 60, way_out: str = "") -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message, way_out=way_out or f"Try again in {retry_after_s} s.")


class Unavailable(HeadgateError):
    """A part of the system is not responding."""

    code = "unavailable"


class Busy(Unavailable):
    """The database is busy with other writes; nothing was changed."""

    code = "busy"
    retry_after_s = 5  # longer than any slice of bulk work, short enough for a script to wait

    def __init__(self) -> None:
        super().__init__(way_out="Try again in a few seconds.")
