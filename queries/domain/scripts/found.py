"""The queries that a script starts: how they are told apart, and what is believed of a report.

A driver runs users' code, so what it reports may be anything: it is checked like a request.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from queries.domain.definitions.locations import NotALocation, canonical
from queries.domain.definitions.spec import ProcessingTime, Trigger
from queries.domain.protocol import FoundQuery

#: Queries of one script; more would be a loop that starts them.
FOUND_AT_MOST = 50
#: Of the part of a row's name that the script gives.
SLUG_LIMIT = 60
_TEXT_LIMIT = 1_024

UNNAMED = "unnamed"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TRIGGER: TypeAdapter[Trigger] = TypeAdapter(Trigger)


def identity(name: str, asked: str) -> str:
    """Return what a query is known by from one driver to the next.

    Its queryName, else the checkpoint that the script names, else being the only unnamed one.
    """
    if name:
        return f"name:{name}"
    return f"checkpoint:{asked}" if asked else UNNAMED


def slug(name: str, asked: str) -> str:
    """Return the part of a row's name, and of a folder's, for a query: letters, digits, . _ -."""
    said = name or asked.rpartition("/")[2]
    return _NOT_IN_NAMES.sub("-", said).strip("-.")[:SLUG_LIMIT] or "query"


def folder(name: str, asked: str) -> str:
    """Return the name of the folder that a query's own checkpoint gets; no two names share one."""
    made, known = slug(name, asked), identity(name, asked)
    if made == name or known == UNNAMED:
        return made if name else UNNAMED
    return f"{made}~{hashlib.sha256(known.encode()).hexdigest()[:12]}"


def row_name(application: str, found: FoundQuery, taken: Iterable[str]) -> str:
    """Return `application/query`, with a number after it where another query is called so."""
    base = f"{application}/{slug(found.name, found.asked)}"
    names, number = set(taken), 1
    name = base
    while name in names:
        number += 1
        name = f"{base}-{number}"
    return name


@dataclass(frozen=True, slots=True)
class Believed:
    """The part of a report that is believed, and why the rest is not."""

    queries: tuple[FoundQuery, ...]
    refused: tuple[str, ...]  # sentences


def believed(found: Iterable[FoundQuery]) -> Believed:
    """Return the found queries whose form is right, at most 50 of them, and what is refused."""
    queries: list[FoundQuery] = []
    refused: list[str] = []
    numbers: set[int] = set()
    for one in found:
        if len(queries) >= FOUND_AT_MOST:
            refused.append(f"Of more than {FOUND_AT_MOST} queries the rest is not shown.")
            break
        why = _fault(one, numbers)
        if why:
            refused.append(f"A query that the driver reports is not shown: {why}")
            continue
        numbers.add(one.number)
        queries.append(one)
    return Believed(tuple(queries), tuple(refused))


def trigger_of(found: FoundQuery) -> Trigger:
    """Return the reported trigger in a definition's form; Spark's default where it has none."""
    try:
        held = _TRIGGER.validate_python(found.trigger)
    except ValidationError:
        return ProcessingTime()
    shown = held.model_dump(mode="json")
    return held if all(len(str(value)) <= 100 for value in shown.values()) else ProcessingTime()


def identity_fault(known: str, name: str, asked: str, *more: str) -> str:
    """Return what is wrong with the texts that describe a query, as a predicate; "" for nothing."""
    for text in (known, name, asked, *more):
        if not isinstance(text, str) or len(text) > _TEXT_LIMIT + 20:
            return "is described by no text, or by too long a text."
        if _CONTROL.search(text):
            return "is described with control characters."
    return "" if known == identity(name, asked) else "is known by another name than its own."


def _fault(one: FoundQuery, numbers: set[int]) -> str:
    """Return what is wrong with a reported query, as a sentence; "" for nothing."""
    number: object = one.number  # a file holds anything
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return "it has no number."
    if number > 2**31 - 1 or number in numbers:
        return f"the number {number} is not its own."
    fault = identity_fault(one.identity, one.name, one.asked, one.location, one.temporary)
    if fault:
        return f"query {number} {fault}"
    try:
        if canonical(one.location) != one.location:
            return f"the checkpoint of query {number} is not written in full."
    except NotALocation as error:
        return f"the checkpoint of query {number} {error}"
    return ""
