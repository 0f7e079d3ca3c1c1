"""The queries that a script starts: how they are identified, and whether a new one replaces a
missing one.

A driver runs users' code, so its reports may contain anything: they are validated like requests.

Only a user can decide this. With a new checkpoint, a query that was only renamed would read its
source again or skip existing data, so the new query does not start until an author has decided.
"""

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from queries.domain.definitions.locations import NotALocation, canonical
from queries.domain.definitions.spec import ProcessingTime, Trigger
from queries.domain.protocol import FoundQuery, ScriptJob, ScriptQuestion

#: Maximum queries per script; more would mean that a loop is starting them.
MAX_QUERIES = 50
#: Maximum length of the part of a row's name that comes from the script, in characters.
SLUG_LIMIT = 60
_TEXT_LIMIT = 1_024

UNNAMED = "unnamed"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TRIGGER: TypeAdapter[Trigger] = TypeAdapter(Trigger)


def identity(name: str, checkpoint: str) -> str:
    """Return a query's identity, which is the same in every driver.

    It is the queryName; if there is none, the checkpoint that the script specifies; if there is
    neither, the identity of the only unnamed query.
    """
    if name:
        return f"name:{name}"
    return f"checkpoint:{checkpoint}" if checkpoint else UNNAMED


def slug(name: str, checkpoint: str) -> str:
    """Return a query's part of row and folder names: letters, digits, . _ -."""
    source = name or checkpoint.rpartition("/")[2]
    return _NOT_IN_NAMES.sub("-", source).strip("-.")[:SLUG_LIMIT] or "query"


def folder(name: str, checkpoint: str) -> str:
    """Return the folder name of a query's own checkpoint, unique for each name."""
    made, identity_text = slug(name, checkpoint), identity(name, checkpoint)
    if made == name or identity_text == UNNAMED:
        return made if name else UNNAMED
    return f"{made}~{hashlib.sha256(identity_text.encode()).hexdigest()[:12]}"


def row_name(application: str, query: FoundQuery, used_names: Iterable[str]) -> str:
    """Return `application/query`, followed by a number if that name is taken."""
    base = f"{application}/{slug(query.name, query.asked)}"
    names, number = set(used_names), 1
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


def believed(reported_queries: Iterable[FoundQuery]) -> Believed:
    """Return the well-formed queries, at most 50, and the reasons for rejecting others."""
    queries: list[FoundQuery] = []
    refused: list[str] = []
    numbers: set[int] = set()
    for query in reported_queries:
        if len(queries) >= MAX_QUERIES:
            refused.append(f"Only {MAX_QUERIES} queries are shown; there are more.")
            break
        why = _fault(query, numbers)
        if why:
            refused.append(f"A query that the driver reports is not shown: {why}")
            continue
        numbers.add(query.number)
        queries.append(query)
    return Believed(tuple(queries), tuple(refused))


def trigger_of(query: FoundQuery) -> Trigger:
    """Return the reported trigger in a definition's form; Spark's default if there is none."""
    try:
        trigger = _TRIGGER.validate_python(query.trigger)
    except ValidationError:
        return ProcessingTime()
    shown = trigger.model_dump(mode="json")
    return trigger if all(len(str(value)) <= 100 for value in shown.values()) else ProcessingTime()


def identity_fault(stated_identity: str, name: str, checkpoint: str, *more: str) -> str:
    """Return what is wrong with a query's identity, as a predicate; "" if nothing."""
    for text in (stated_identity, name, checkpoint, *more):
        if not isinstance(text, str) or len(text) > _TEXT_LIMIT + 20:
            return "has no description, or one that is too long."
        if _CONTROL.search(text):
            return "has control characters in its description."
    return "" if stated_identity == identity(name, checkpoint) else "is known by a different name."


def _fault(query: FoundQuery, numbers: set[int]) -> str:
    """Return the problem with a reported query, as a sentence; "" if there is none."""
    number: object = query.number  # a file may contain anything
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return "it has no number."
    if number > 2**31 - 1 or number in numbers:
        return f"the number {number} belongs to another query."
    fault = identity_fault(query.identity, query.name, query.asked, query.location, query.temporary)
    if fault:
        return f"query {number} {fault}"
    try:
        if canonical(query.location) != query.location:
            return f"the checkpoint of query {number} is not an absolute location."
    except NotALocation as error:
        return f"the checkpoint of query {number} {error}"
    return ""


#: Suffix of a checkpoint folder that is not used for recovery.
TEMPORARY = ".temporary"


def question(
    job: ScriptJob,
    started_identities: Collection[str],
    *,
    identity: str,
    name: str,
    checkpoint: str,
) -> ScriptQuestion | None:
    """Return the question to ask before a query starts; None if it may start.

    `started_identities` are the identities that the script has started, or tried to start, in this
    driver. Known queries that are missing may still start later, which cannot be known yet.
    """
    if identity in job.accepted or any(
        known_query.identity == identity for known_query in job.known
    ):
        return None
    missing = tuple(
        known_query.query
        for known_query in job.known
        if known_query.identity not in started_identities
        and not known_query.gone
        and not known_query.location.endswith(TEMPORARY)  # it has nothing that could be lost
    )
    return ScriptQuestion(identity, name, checkpoint, missing) if missing else None


def believed_question(
    reported_question: ScriptQuestion | None, candidates: Collection[int]
) -> ScriptQuestion | None:
    """Return a reported question if it is well formed; `candidates` are the queries it may list."""
    if reported_question is None or identity_fault(
        reported_question.identity, reported_question.name, reported_question.asked
    ):
        return None
    missing = tuple(pk for pk in reported_question.missing[:MAX_QUERIES] if pk in candidates)
    return (
        ScriptQuestion(
            reported_question.identity, reported_question.name, reported_question.asked, missing
        )
        if missing
        else None
    )


def as_json(script_question: ScriptQuestion) -> dict[str, object]:
    """Return the form stored in the script's row."""
    return {**asdict(script_question), "missing": list(script_question.missing)}


def called(name: str, checkpoint: str) -> str:
    """Return how sentences refer to a script's query that has no row yet."""
    if name:
        return f'"{name}"'
    return f"with the checkpoint {checkpoint}" if checkpoint else "without a name"
