"""One identity goes and another comes: is it the same query?

Nobody but a person knows. A new checkpoint for a query that was only renamed would read its source
again, or leave out what was there; so the new one does not start before an author has said.
"""

from collections.abc import Collection
from dataclasses import asdict

from queries.domain.protocol import Question, ScriptJob
from queries.domain.scripts.found import FOUND_AT_MOST, identity_fault

#: Ends the name of a checkpoint's folder from which nothing is recovered.
TEMPORARY = ".temporary"


def question(
    job: ScriptJob, met: Collection[str], *, identity: str, name: str, asked: str
) -> Question | None:
    """Return what is to be asked before a query starts; None where it may start.

    `met` are the identities that the script has started, or tried to, in this driver. Known
    queries that are not among them may start later: at this time nobody can tell.
    """
    if identity in job.accepted or any(known.identity == identity for known in job.known):
        return None
    missing = tuple(
        known.query
        for known in job.known
        if known.identity not in met
        and not known.gone
        and not known.location.endswith(TEMPORARY)  # nothing of it could be lost
    )
    return Question(identity, name, asked, missing) if missing else None


def believed_question(told: Question | None, candidates: Collection[int]) -> Question | None:
    """Return a reported question whose form is right; `candidates` are the queries it may name."""
    if told is None or identity_fault(told.identity, told.name, told.asked):
        return None
    missing = tuple(pk for pk in told.missing[:FOUND_AT_MOST] if pk in candidates)
    return Question(told.identity, told.name, told.asked, missing) if missing else None


def as_json(told: Question) -> dict[str, object]:
    """Return the form that the script's row keeps."""
    return {**asdict(told), "missing": list(told.missing)}


def called(name: str, asked: str) -> str:
    """Return how sentences name a query of a script that has no row yet."""
    if name:
        return f'"{name}"'
    return f"with the checkpoint {asked}" if asked else "without a name"
