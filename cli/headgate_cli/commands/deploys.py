"""`deploy` and `rollback`: apply changes in waves with a receipt, and undo them."""

from enum import StrEnum
from typing import Annotated

import typer

from headgate_cli.asked import Output, QueryName, Timeout, bare_name, server
from headgate_cli.commands.manifests import REFUSED_SET
from headgate_cli.ends import Code, Ended
from headgate_cli.following import Limit, Progress, code_of, follow, told_if_interrupted
from headgate_cli.output import Form, note, plain, say, show_document
from headgate_cli.server import Json, Server
from headgate_cli.sets import AcceptStateChange, Request, show, takes_set

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
    output: Output = Form.TABLE,
) -> int:
    """Apply a set and restart the queries it changes, wave by wave; undo it if a wave fails.

    Exit code 0: SUCCEEDED. 2: it failed, was rolled back or cancelled; the receipt shows why.
    """
    limit, there = Limit(timeout), server(context)
    body = {
        "apply": request.body(there),
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
    begun: Json = there.post("deploys", body=body, accept=(REFUSED_SET,))
    if "id" not in begun:
        return _refused(begun)
    note(f"Deploy {begun['id']}: headgate describe deploy {begun['id']}")
    ended = followed(there, begun, limit) if wait else begun
    show_deploy(ended, output)
    return code_of(ended["state"]) if wait else Code.DONE


def rollback(
    context: typer.Context,
    query: QueryName,
    to: Annotated[int, typer.Option(min=1, help="Revision, as listed by `get revisions`.")],
    accept_state_change: AcceptStateChange = False,
    wait: Annotated[bool, typer.Option(help="Follow the rollback until it ends.")] = True,
    timeout: Timeout = "10m",
    output: Output = Form.TABLE,
) -> int:
    """Run an earlier revision of a query again, saved as its newest revision."""
    limit, there = Limit(timeout), server(context)
    body: Json = {"revision": to}
    if accept_state_change:  # an earlier server does not know this field
        body["accept_state_change"] = True
    operation: Json = there.post("queries", query, "rollback", body=body)
    code = follow(there, [operation], limit) if wait else int(Code.DONE)
    if output is Form.TABLE:
        say(f"{query}: rollback to revision {to}, operation {operation['id']}")
    elif output is Form.NAME:
        say(f"operation/{operation['id']}")
    else:
        show_document(there.get("operations", operation["id"]), output)
    return code


def _first(first: First) -> Json:
    """Return the order for the request; the default is not sent, as older servers reject it."""
    return {} if first is First.UPSTREAM else {"first": str(first)}


def _refused(answer: Json) -> int:
    """Report why a deploy was not started: problems by object, or with the request itself."""
    if "objects" in answer:
        show(answer, values=True)
        return Code.REFUSED
    title, way_out = str(answer.get("title", "")), str(answer.get("way_out") or "")
    raise Ended(Code.REFUSED, title, way_out, answer.get("problems") or [])


def followed(there: Server, deploy: Json, limit: Limit) -> Json:
    """Return a deploy once it has ended; raise `Ended` if the limit expires first."""
    progress, shown = Progress(), ""
    with told_if_interrupted(f"deploy/{deploy['id']}", progress):
        while deploy["state"] in _OPEN:
            if (stage := _stage(deploy)) != shown:
                limit.moved()
            shown = stage
            progress.tell(stage)
            limit.pause(f"deploy {deploy['id']}: {stage}")
            deploy = there.get("deploys", deploy["id"])
    progress.end()
    return deploy


def _stage(deploy: Json) -> str:
    """Return a deploy's progress: its stage, and what the current wave is waiting for."""
    waves = deploy.get("waves") or []
    changes = [(wave["number"], one) for wave in waves for one in _changes(wave)]
    said = f"{deploy['state']}: {deploy.get('stage') or 'begins'}"
    for number, one in [held for held in changes if held[1].get("reason")][:1]:
        said += f"; wave {number} of {len(waves)}: {one['name']}: {plain(one['reason'])}"
    return said


def _changes(wave: Json) -> list[Json]:
    return [*wave.get("applications", []), *wave["queries"]]


def show_deploy(deploy: Json, output: Form) -> None:
    """Print a deploy; as a table, its receipt in short form."""
    if output is Form.NAME:
        say(f"deploy/{deploy['id']}")
    elif output is not Form.TABLE:
        show_document(deploy, output)
    else:
        _show(deploy)


def _revisions(change: Json) -> str:
    """Return a change's revisions: before, deployed and, after a rollback, current."""
    before = "new" if change.get("from_revision") is None else str(change["from_revision"])
    later = [change.get("to_revision") or "-", change.get("back_revision")]
    moved = " → ".join([before, *(str(one) for one in later if one)])
    return f"revision {moved}" + (" (as before)" if change.get("back_revision") else "")


def _show(deploy: Json) -> None:
    reason = f": {plain(deploy['reason'])}" if deploy.get("reason") else ""
    say(f"Deploy {deploy['id']}: {deploy['state']}{reason}")
    if unsure := deploy.get("unsure"):  # an older server does not send it
        names = ", ".join(map(plain, unsure))
        say(f"  order may be incomplete: not all reads and writes are known of {names}")
    for wave in deploy.get("waves") or []:
        say(f"  wave {wave['number']}: {wave['state']}")
        for one in _changes(wave):
            why = f": {plain(one['reason'])}" if one.get("reason") else ""
            say(f"    {one['name']}: {one['state']}, {_revisions(one)}{why}")
    for offer in deploy.get("offers") or []:
        to = f"snapshot {offer['snapshot']}" if offer.get("snapshot") else "an earlier revision"
        say(f"  offered: {offer['act']} of {offer['query']} to {to}")
