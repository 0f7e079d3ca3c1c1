"""One query of a script disappears and another appears: is it the same query?

Only a user can tell. With a new checkpoint, a query that was only renamed would read its source
again or skip existing data, so the new query does not start until an author has decided.
"""

from collections.abc import Collection
from dataclasses import asdict

from queries.domain.protocol import ScriptJob, ScriptQuestion
from queries.domain.scripts.script_queries import MAX_QUERIES, identity_fault

#: Suffix of a checkpoint folder that is not used for recovery.
TEMPORARY = ".temporary"


def question(
    job: ScriptJob, started: Collection[str], *, identity: str, name: str, checkpoint: str
) -> ScriptQuestion | None:
    """Return the question to ask before a query starts; None if it may start.

    `started` are the identities that the script has started, or tried to start, in this driver.
    Known queries that are missing may still start later, which cannot be known yet.
    """
    if identity in job.accepted or any(earlier.identity == identity for earlier in job.known):
        return None
    missing = tuple(
        earlier.query
        for earlier in job.known
        if earlier.identity not in started
        and not earlier.gone
        and not earlier.location.endswith(TEMPORARY)  # it has nothing that could be lost
    )
    return ScriptQuestion(identity, name, checkpoint, missing) if missing else None


def believed_question(
    reported: ScriptQuestion | None, candidates: Collection[int]
) -> ScriptQuestion | None:
    """Return a reported question if it is well formed; `candidates` are the queries it may list."""
    if reported is None or identity_fault(reported.identity, reported.name, reported.asked):
        return None
    missing = tuple(pk for pk in reported.missing[:MAX_QUERIES] if pk in candidates)
    return (
        ScriptQuestion(reported.identity, reported.name, reported.asked, missing)
        if missing
        else None
    )


def as_json(reported: ScriptQuestion) -> dict[str, object]:
    """Return the form stored in the script's row."""
    return {**asdict(reported), "missing": list(reported.missing)}


def called(name: str, checkpoint: str) -> str:
    """Return how sentences refer to a script's query that has no row yet."""
    if name:
        return f'"{name}"'
    return f"with the checkpoint {checkpoint}" if checkpoint else "without a name"
