"""`deploy` and `rollback`: apply changes in waves with a report, and undo them."""

from enum import StrEnum
from typing import Annotated

import typer

from headgate_cli.commands.manifests import REFUSED_SET
from headgate_cli.following import ProgressLine, TimeLimit, code_of, follow, hint_if_interrupted
from headgate_cli.output import (
    CommandEnded,
    ExitCode,
    OutputForm,
    note,
    plain,
    print_result,
    show_document,
)
from headgate_cli.server import Json, Server
from headgate_cli.sets import (
    AcceptStateChange,
    Output,
    QueryName,
    Request,
    Timeout,
    bare_name,
    server,
    show,
    takes_set,
)

#: States of a deploy that has not ended yet.
_OPEN = ("PENDING", "RUNNING")


class First(StrEnum):
    """What goes first, of the queries that are connected by data."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"
    NAME = "name"


class OnFailure(StrEnum):
    """What happens to the changes if a wave fails."""

    ROLLBACK = "rollback"
    STOP = "stop"


@takes_set
def deploy(
    context: typer.Context,
    request: Request,
    canary: Annotated[
        list[str],
        typer.Option(
            parser=bare_name, help="Queries or applications in the first wave; repeatable."
        ),
    ] = [],  # noqa: B006 (read only)
    size: Annotated[int, typer.Option(min=1, help="Number of queries in each later wave.")] = 5,
    first: Annotated[
        First,
        typer.Option(
            help="Which queries go first: upstream (they write data) or downstream (they read it); "
            "name: alphabetical order."
        ),
    ] = First.UPSTREAM,
    batches: Annotated[int, typer.Option(min=0, help="Succeed after this many batches.")] = 0,
    minutes: Annotated[int, typer.Option(min=0, help="Succeed after this many minutes.")] = 0,
    lag_not_worse: Annotated[
        bool, typer.Option("--lag-not-worse", help="Succeed only if lag is not worse than before.")
    ] = False,
    new_failures: Annotated[
        bool, typer.Option("--allow-new-failures", help="Succeed even if there are new failures.")
    ] = False,
    deadline: Annotated[
        int, typer.Option(min=1, help="Minutes within which each wave must succeed.")
    ] = 10,
    on_failure: Annotated[OnFailure, typer.Option(help="Else.")] = OnFailure.ROLLBACK,
    preflight: Annotated[
        bool,
        typer.Option(
            "--preflight", help="Test each new revision on a copy of its checkpoint first."
        ),
    ] = False,
    wait: Annotated[bool, typer.Option(help="Follow the deploy until it ends.")] = True,
    timeout: Timeout = "1h",
    output: Output = OutputForm.TABLE,
) -> int:
    """Apply a set and restart the queries it changes, wave by wave; undo it if a wave fails.

    Exit code 0: SUCCEEDED. 2: it failed, was rolled back or cancelled; the report shows why.
    """
    limit, api = TimeLimit(timeout), server(context)
    body = {
        "apply": request.body(api),
        "waves": {"canary": canary, "size": size} | _first(first),
        "good": {
            "first_commit": True,
            "batches": batches,
            "minutes": minutes,
            "lag_not_worse": lag_not_worse,
            "no_new_failures": not new_failures,
            "deadline_minutes": deadline,
        },
        "on_failure": on_failure,
        "preflight": preflight,
    }
    begun: Json = api.post("deploys", body=body, accept=(REFUSED_SET,))
    if "id" not in begun:
        return _refused(begun)
    note(f"Deploy {begun['id']}: headgate describe deploy {begun['id']}")
    ended = followed(api, begun, limit) if wait else begun
    show_deploy(ended, output)
    return code_of(ended["state"]) if wait else ExitCode.DONE


def rollback(
    context: typer.Context,
    query: QueryName,
    to: Annotated[int, typer.Option(min=1, help="Revision, as listed by `get revisions`.")],
    accept_state_change: AcceptStateChange = False,
    wait: Annotated[bool, typer.Option(help="Follow the rollback until it ends.")] = True,
    timeout: Timeout = "10m",
    output: Output = OutputForm.TABLE,
) -> int:
    """Run an earlier revision of a query again, saved as its newest revision."""
    limit, api = TimeLimit(timeout), server(context)
    body: Json = {"revision": to}
    if accept_state_change:  # an earlier server does not know this field
        body["accept_state_change"] = True
    operation: Json = api.post("queries", query, "rollback", body=body)
    code = follow(api, [operation], limit) if wait else int(ExitCode.DONE)
    if output is OutputForm.TABLE:
        print_result(f"{query}: rollback to revision {to}, operation {operation['id']}")
    elif output is OutputForm.NAME:
        print_result(f"operation/{operation['id']}")
    else:
        show_document(api.get("operations", operation["id"]), output)
    return code


def _first(first: First) -> Json:
    """Return the order for the request; the default is not sent, as older servers reject it."""
    return {} if first is First.UPSTREAM else {"first": str(first)}


def _refused(answer: Json) -> int:
    """Report why a deploy was not started: problems by object, or with the request itself."""
    if "objects" in answer:
        show(answer, values=True)
        return ExitCode.REFUSED
    title, way_out = str(answer.get("title", "")), str(answer.get("way_out") or "")
    raise CommandEnded(ExitCode.REFUSED, title, way_out, answer.get("problems") or [])


def followed(api: Server, deploy: Json, limit: TimeLimit) -> Json:
    """Return a deploy once it has ended; raise `CommandEnded` if the timeout expires first."""
    progress, shown = ProgressLine(), ""
    with hint_if_interrupted(f"deploy/{deploy['id']}", progress):
        while deploy["state"] in _OPEN:
            if (stage := _stage(deploy)) != shown:
                limit.moved()
            shown = stage
            progress.report(stage)
            limit.pause(f"deploy {deploy['id']}: {stage}")
            deploy = api.get("deploys", deploy["id"])
    progress.end()
    return deploy


def _stage(deploy: Json) -> str:
    """Return a deploy's progress: its stage, and what the current wave is waiting for."""
    waves = deploy.get("waves") or []
    changes = [(wave["number"], change) for wave in waves for change in _changes(wave)]
    progress = f"{deploy['state']}: {deploy.get('stage') or 'begins'}"
    for number, change in [pending for pending in changes if pending[1].get("reason")][:1]:
        progress += f"; wave {number} of {len(waves)}: {change['name']}: {plain(change['reason'])}"
    return progress


def _changes(wave: Json) -> list[Json]:
    return [*wave.get("applications", []), *wave["queries"]]


def show_deploy(deploy: Json, output: OutputForm) -> None:
    """Print a deploy; as a table, its report in short form."""
    if output is OutputForm.NAME:
        print_result(f"deploy/{deploy['id']}")
    elif output is not OutputForm.TABLE:
        show_document(deploy, output)
    else:
        _show(deploy)


def _revisions(change: Json) -> str:
    """Return a change's revisions: before, deployed and, after a rollback, current."""
    before = "new" if change.get("from_revision") is None else str(change["from_revision"])
    later = [change.get("to_revision") or "-", change.get("back_revision")]
    moved = " → ".join([before, *(str(revision) for revision in later if revision)])
    return f"revision {moved}" + (" (as before)" if change.get("back_revision") else "")


def _show(deploy: Json) -> None:
    reason = f": {plain(deploy['reason'])}" if deploy.get("reason") else ""
    print_result(f"Deploy {deploy['id']}: {deploy['state']}{reason}")
    if unsure := deploy.get("unsure"):  # an older server does not send it
        names = ", ".join(map(plain, unsure))
        print_result(f"  order may be incomplete: not all reads and writes are known of {names}")
    for wave in deploy.get("waves") or []:
        print_result(f"  wave {wave['number']}: {wave['state']}")
        for change in _changes(wave):
            why = f": {plain(change['reason'])}" if change.get("reason") else ""
            print_result(f"    {change['name']}: {change['state']}, {_revisions(change)}{why}")
    for offer in deploy.get("offers") or []:
        to = f"snapshot {offer['snapshot']}" if offer.get("snapshot") else "an earlier revision"
        print_result(f"  offered: {offer['act']} of {offer['query']} to {to}")
