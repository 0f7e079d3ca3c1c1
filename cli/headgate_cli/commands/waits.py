"""`wait` for a state of queries or a script, and `run`: a start with parameters, to its end."""

from enum import StrEnum
from typing import Annotated

import typer

from headgate_cli.following import ProgressLine, TimeLimit, about, completed
from headgate_cli.output import CommandEnded, ExitCode, plain, print_result, refused, worst
from headgate_cli.server import Json, Server
from headgate_cli.sets import AcceptStateChange, OfScript, QueryName, QueryNames, Timeout, server


class For(StrEnum):
    """The state to wait for."""

    FIRST_COMMIT = "first-commit"
    RUNNING = "running"
    STOPPED = "stopped"
    COMPLETED = "completed"


#: Phases of a query that ended as intended.
_STOPPED = ("STOPPED", "COMPLETED")
#: Phases in which the desired state has been reached.
_REACHED = {
    For.FIRST_COMMIT: ("RUNNING", "COMPLETED"),
    For.RUNNING: ("RUNNING",),
    For.STOPPED: _STOPPED,
    For.COMPLETED: ("COMPLETED",),
}
#: Phases that a failed query leaves only by an operator's action or a rare retry probe.
_FINAL_PHASES = ("FAILED", "ON_HOLD")
#: Maximum queries per script, including missing ones.
MOST_QUERIES = 500
#: Verbs that change what runs.
_VERBS = ("start", "stop", "restart")


def wait(
    context: typer.Context,
    what: Annotated[For, typer.Option("--for", help="Condition that each must reach.")],
    names: QueryNames = None,
    application: OfScript = "",
    timeout: Timeout = "10m",
) -> int:
    """Wait until each query, or the script of an application, has reached a state.

    running: its run has committed a batch or found nothing to read; a script is running.
    first-commit: the same, or the query has completed; for a script, each query that it started.
    stopped: nothing is running, and nothing will start. completed: it has ended without being
    stopped, as with the triggers available_now and once. If the state can only be reached by a
    user's action, the command ends immediately.
    """
    if bool(names) == bool(application):
        raise CommandEnded(
            ExitCode.USAGE, "Name what to wait for.", "Name queries, or use --application."
        )
    limit, api = TimeLimit(timeout), server(context)
    if application:
        return _wait_for(api, _Script(api, application), what, limit)
    return worst([_wait_for(api, _Query(api, name), what, limit) for name in names or []])


def run(
    context: typer.Context,
    name: QueryName,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", help="Value for a parameter, NAME=VALUE; repeat for several."),
    ] = None,
    accept_state_change: AcceptStateChange = False,
    following: Annotated[
        bool, typer.Option("--follow", help="Wait until the query has completed.")
    ] = False,
    timeout: Timeout = "1h",
) -> int:
    """Start a query with values for its parameters; parameters without a value get their defaults.

    With --follow, the exit code is 0 if the query completed, 2 if it failed or was stopped, and 3
    if it is still running after the timeout.
    """
    limit, api = TimeLimit(timeout), server(context)
    body: Json = {"params": _values(param or []), "read_text": True}
    if accept_state_change:
        body["accept_state_change"] = True
    operation = api.post("queries", name, "start", body=body)
    if not following:
        print_result(f"{about(operation)}: requested, operation {operation['id']}")
        return ExitCode.DONE
    end = completed(api, operation, limit)
    state = _Query(api, name).look()
    print_result(f"{name}: {end}. {_summary(state)}")
    return ExitCode.DONE if end == "COMPLETED" else ExitCode.FAILED


def _values(texts: list[str]) -> dict[str, str]:
    values = {}
    for pair in texts:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise CommandEnded(
                ExitCode.USAGE, f"--param {pair} has no value.", "Write --param NAME=VALUE."
            )
        values[name] = value
    return values


class _Query:
    """A query, and how to request its state."""

    of = "query"

    def __init__(self, api: Server, name: str) -> None:
        self.api, self.name = api, name
        self.start, self.logs = f"headgate start {name}", f"headgate logs {name}"

    def look(self) -> Json:
        """Return its state: name, phase, phase_reason, phase_detail and desired."""
        state: Json = self.api.get("queries", self.name)
        return state

    def has_committed(self, state: Json) -> bool:
        """Return whether a running query has proven itself."""
        return bool(state["phase"] == "RUNNING")


class _Script(_Query):
    """The script of an application."""

    of = "application"

    def __init__(self, api: Server, name: str) -> None:
        super().__init__(api, name)
        self.start = f"headgate start --application {name}"
        self.logs = f"headgate logs --application {name}"

    def look(self) -> Json:
        """Return the script's state; raise `CommandEnded` if the application runs none."""
        body = self.api.get("applications", self.name)
        if body["script"] is None:
            queries = " ".join(body["queries"]) or "none yet"
            raise refused(f"{self.name} runs queries, not a script.", f"Its queries: {queries}.")
        return {**body["script"], "name": self.name}

    def has_committed(self, state: Json) -> bool:
        """Return whether it has started a query, and all queries that should run are running."""
        rows = list(self.api.rows("queries", most=MOST_QUERIES, application=self.name))
        wanted = [row["phase"] for row in rows if row["desired"] == "RUNNING"]
        done = [row["phase"] for row in rows if row["phase"] in ("RUNNING", "COMPLETED")]
        return bool(done) and all(phase in ("RUNNING", "COMPLETED") for phase in wanted)


def _wait_for(api: Server, it: _Query, what: For, limit: TimeLimit) -> int:
    progress = ProgressLine()
    while True:
        status = it.look()
        state = f"{it.name}: {status['phase']}. {_summary(status)}"
        end = _end(it, status, what)
        if end is not None and not _changing(api, it):
            progress.end()
            if isinstance(end, CommandEnded):
                raise end
            print_result(state)
            return end
        progress.report(state)
        limit.pause(state, reads=True)


def _summary(status: Json) -> str:
    """Return the summary on the query's page; scripts, and queries on older servers, have none."""
    return plain(status.get("summary") or status["phase_detail"] or status["phase_reason"])


def _changing(api: Server, it: _Query) -> bool:
    """Return whether a start, stop or restart is in progress: the phase may still be old."""
    rows = api.rows("operations", most=50, open="true", **{it.of: it.name})
    return any(row["verb"] in _VERBS for row in rows)


def _end(it: _Query, status: Json, what: For) -> ExitCode | CommandEnded | None:
    """Return how the wait ends in the current state; None if it continues."""
    name, phase = it.name, status["phase"]
    if phase in _REACHED[what]:
        proven = what is not For.FIRST_COMMIT or phase != "RUNNING" or it.has_committed(status)
        return ExitCode.DONE if proven else None
    if phase in _FINAL_PHASES and status["desired"] == "RUNNING":
        detail = _summary(status)
        way_out = f"headgate describe {it.of} {name}; {it.logs}"
        return CommandEnded(ExitCode.FAILED, f"{name} is {phase}: {detail}", way_out)
    if phase in _STOPPED:  # and the desired state is a run
        message = f"{name} is {phase}, and is not set to run."
        return CommandEnded(ExitCode.REFUSED, message, it.start)
    return None
