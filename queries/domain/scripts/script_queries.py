"""The queries that a script starts: how they are identified, and which reports are trusted.

A driver runs users' code, so its reports may contain anything: they are validated like requests.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from queries.domain.definitions.locations import NotALocation, canonical
from queries.domain.definitions.spec import ProcessingTime, Trigger
from queries.domain.protocol import FoundQuery

#: Maximum queries per script; more would mean that a loop is starting them.
FOUND_AT_MOST = 50
#: Maximum length of the part of a row's name that comes from the script, in characters.
SLUG_LIMIT = 60
_TEXT_LIMIT = 1_024

UNNAMED = "unnamed"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TRIGGER: TypeAdapter[Trigger] = TypeAdapter(Trigger)


def identity(name: str, asked: str) -> str:
    """Return a query's identity, which is the same in every driver.

    It is the queryName; if there is none, the checkpoint that the script specifies; if there is
    neither, the identity of the only unnamed query.
    """
    if name:
        return f"name:{name}"
    return f"checkpoint:{asked}" if asked else UNNAMED


def slug(name: str, asked: str) -> str:
    """Return the part of row and folder names that stands for a query: letters, digits, . _ -."""
    said = name or asked.rpartition("/")[2]
    return _NOT_IN_NAMES.sub("-", said).strip("-.")[:SLUG_LIMIT] or "query"


def folder(name: str, asked: str) -> str:
    """Return the folder name of a query's own checkpoint, unique for each name."""
    made, known = slug(name, asked), identity(name, asked)
    if made == name or known == UNNAMED:
        return made if name else UNNAMED
    return f"{made}~{hashlib.sha256(known.encode()).hexdigest()[:12]}"


def row_name(application: str, found: FoundQuery, taken: Iterable[str]) -> str:
    """Return `application/query`, followed by a number if that name is taken."""
    base = f"{application}/{slug(found.name, found.asked)}"
    names, number = set(taken), 1
    name = base
    while name in names:
        number += 1
        name = f"{base}-{number}"
    return name


@dataclass(frozen=True, slots=True)
class Believed:
    """The trusted part of a report, and why the rest was rejected."""

    queries: tuple[FoundQuery, ...]
    refused: tuple[str, ...]  # sentences


def believed(found: Iterable[FoundQuery]) -> Believed:
    """Return the well-formed found queries, at most 50, and what was rejected."""
    queries: list[FoundQuery] = []
    refused: list[str] = []
    numbers: set[int] = set()
    for one in found:
        if len(queries) >= FOUND_AT_MOST:
            refused.append(f"Only {FOUND_AT_MOST} queries are shown; there are more.")
            break
        why = _fault(one, numbers)
        if why:
            refused.append(f"A query that the driver reports is not shown: {why}")
            continue
        numbers.add(one.number)
        queries.append(one)
    return Believed(tuple(queries), tuple(refused))


def trigger_of(found: FoundQuery) -> Trigger:
    """Return the reported trigger in a definition's form; Spark's default if there is none."""
    try:
        held = _TRIGGER.validate_python(found.trigger)
    except ValidationError:
        return ProcessingTime()
    shown = held.model_dump(mode="json")
    return held if all(len(str(value)) <= 100 for value in shown.values()) else ProcessingTime()


def identity_fault(known: str, name: str, asked: str, *more: str) -> str:
    """Return what is wrong with the texts that describe a query, as a predicate; "" if nothing."""
    for text in (known, name, asked, *more):
        if not isinstance(text, str) or len(text) > _TEXT_LIMIT + 20:
            return "has no description, or one that is too long."
        if _CONTROL.search(text):
            return "has control characters in its description."
    return "" if known == identity(name, asked) else "is known by a different name."


def _fault(one: FoundQuery, numbers: set[int]) -> str:
    """Return what is wrong with a reported query, as a sentence; "" if nothing is wrong."""
    number: object = one.number  # a file may contain anything
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return "it has no number."
    if number > 2**31 - 1 or number in numbers:
        return f"the number {number} belongs to another query."
    fault = identity_fault(one.identity, one.name, one.asked, one.location, one.temporary)
    if fault:
        return f"query {number} {fault}"
    try:
        if canonical(one.location) != one.location:
            return f"the checkpoint of query {number} is not an absolute location."
    except NotALocation as error:
        return f"the checkpoint of query {number} {error}"
    return ""
