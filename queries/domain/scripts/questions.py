"""One query of a script disappears and another appears: is it the same query?

Only a user can tell. With a new checkpoint, a query that was only renamed would read its source
again or skip existing data, so the new query does not start until an author has decided.
"""

from collections.abc import Collection
from dataclasses import asdict

from queries.domain.protocol import Question, ScriptJob
from queries.domain.scripts.script_queries import FOUND_AT_MOST, identity_fault

#: Suffix of a checkpoint folder that is not used for recovery.
TEMPORARY = ".temporary"


def question(
    job: ScriptJob, met: Collection[str], *, identity: str, name: str, asked: str
) -> Question | None:
    """Return the question to ask before a query starts; None if it may start.

    `met` are the identities that the script has started, or tried to start, in this driver. Known
    queries that are missing may still start later, which cannot be known yet.
    """
    if identity in job.accepted or any(known.identity == identity for known in job.known):
        return None
    missing = tuple(
        known.query
        for known in job.known
        if known.identity not in met
        and not known.gone
        and not known.location.endswith(TEMPORARY)  # it has nothing that could be lost
    )
    return Question(identity, name, asked, missing) if missing else None


def believed_question(told: Question | None, candidates: Collection[int]) -> Question | None:
    """Return a reported question if it is well formed; `candidates` are the queries it may list."""
    if told is None or identity_fault(told.identity, told.name, told.asked):
        return None
    missing = tuple(pk for pk in told.missing[:FOUND_AT_MOST] if pk in candidates)
    return Question(told.identity, told.name, told.asked, missing) if missing else None


def as_json(told: Question) -> dict[str, object]:
    """Return the form stored in the script's row."""
    return {**asdict(told), "missing": list(told.missing)}


def called(name: str, asked: str) -> str:
    """Return how sentences refer to a script's query that has no row yet."""
    if name:
        return f'"{name}"'
    return f"with the checkpoint {asked}" if asked else "without a name"
