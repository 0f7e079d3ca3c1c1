"""`wait`: until a query runs, has committed, or has stopped."""

from enum import StrEnum
from typing import Annotated

import typer

from headgate_cli.asked import QueryNames, Timeout, server
from headgate_cli.ends import Code, Ended, worst
from headgate_cli.following import Limit, Progress
from headgate_cli.output import plain, say
from headgate_cli.server import Json, Server


class For(StrEnum):
    """What is waited for."""

    FIRST_COMMIT = "first-commit"
    RUNNING = "running"
    STOPPED = "stopped"


#: Phases in which a query has ended as it should.
_STOPPED = ("STOPPED", "COMPLETED")
#: Phases in which what is waited for is there.
_REACHED = {
    For.FIRST_COMMIT: ("RUNNING", "COMPLETED"),
    For.RUNNING: ("RUNNING",),
    For.STOPPED: _STOPPED,
}
#: Phases that a failed query leaves by an operator's act, or by a rare retry probe.
_HELD = ("FAILED", "BROKEN")
#: Verbs that change what runs.
_VERBS = ("start", "stop", "restart")


def wait(
    context: typer.Context,
    names: QueryNames,
    what: Annotated[For, typer.Option("--for", help="What each of them is to reach.")],
    timeout: Timeout = "10m",
) -> int:
    """Wait until each query has reached a state.

    running: its run has committed a batch or found nothing to read. first-commit: the same, or the
    query has completed. stopped: nothing runs and nothing will. What can be reached by an act of
    somebody alone is answered at once.
    """
    limit, there = Limit(timeout), server(context)
    return worst([_one(there, name, what, limit) for name in names])


def _one(there: Server, name: str, what: For, limit: Limit) -> int:
    progress = Progress()
    while True:
        query = there.get("queries", name)
        state = f"{name}: {query['phase']}, {plain(query['phase_reason'])}"
        end = _end(query, what)
        if end is not None and not _changing(there, name):
            progress.end()
            if isinstance(end, Ended):
                raise end
            say(state)
            return end
        progress.tell(state)
        limit.pause(state)


def _changing(there: Server, name: str) -> bool:
    """Tell whether a start, stop or restart is under way: the phase may still be the old one."""
    rows = there.rows("operations", most=50, query=name, open="true")
    return any(row["verb"] in _VERBS for row in rows)


def _end(query: Json, what: For) -> Code | Ended | None:
    """Return how the wait ends with a query as it is; None: it goes on."""
    name, phase = query["name"], query["phase"]
    if phase in _REACHED[what]:
        return Code.DONE
    if phase in _HELD and query["desired"] == "RUNNING":
        detail = plain(query["phase_detail"] or query["phase_reason"])
        way_out = f"headgate describe query {name}; headgate logs {name}"
        return Ended(Code.FAILED, f"{name} is {phase}: {detail}", way_out)
    if phase in _STOPPED:  # and what is waited for is a run
        message = f"{name} is {phase}, and nobody has asked for it to run."
        return Ended(Code.REFUSED, message, f"headgate start {name}")
    return None
