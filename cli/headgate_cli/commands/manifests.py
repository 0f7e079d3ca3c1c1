"""`apply`, `diff` and `export`: desired state from files, and back."""

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from headgate_cli.asked import Files, Output, Timeout, Wait, server
from headgate_cli.ends import Code, Ended, refused
from headgate_cli.following import Limit, follow
from headgate_cli.output import Form, note, say, show_document, yaml_text
from headgate_cli.server import Json, Server
from headgate_cli.sets import (
    Owner,
    Prune,
    PruneRunning,
    Request,
    Sets,
    ValueFiles,
    differing,
    show,
)

#: The answer to a set that is refused: the same body as to one that is taken.
REFUSED_SET = 422


def apply(
    context: typer.Context,
    names: Files,
    value_files: ValueFiles = [],  # noqa: B006 (read only)
    values: Sets = [],  # noqa: B006
    owner: Owner = "",
    prune: Prune = False,
    prune_running: PruneRunning = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    wait: Wait = False,
    timeout: Timeout = "10m",
    output: Output = Form.TABLE,
) -> int:
    """Write definitions from files, all of them or none.

    What runs goes on with its revision until it is restarted or deployed. A folder that an
    application's `code.upload` names is packed and uploaded.
    """
    limit, there = Limit(timeout), server(context)
    request = Request(names, value_files, values, owner, prune, prune_running)
    answer = _sent(there, request, dry_run=dry_run)
    _show(answer, output, values=dry_run)
    if _is_refused(answer):
        return Code.REFUSED
    begun = answer.get("operations", [])
    if begun and not wait:
        several = (
            "1 operation; follow it" if len(begun) == 1 else f"{len(begun)} operations; follow them"
        )
        note(f"Requested: {several} with --wait.")
    if begun and wait:
        return follow(there, (there.get("operations", one) for one in begun), limit)
    return Code.DONE


def diff(
    context: typer.Context,
    names: Files,
    value_files: ValueFiles = [],  # noqa: B006
    values: Sets = [],  # noqa: B006
    owner: Owner = "",
    prune: Prune = False,
    prune_running: PruneRunning = False,
    output: Output = Form.TABLE,
) -> int:
    """Say what `apply` would change, field by field. Exit code 4 where it would change anything.

    Only code is uploaded, for what it changes depends on its digest.
    """
    request = Request(names, value_files, values, owner, prune, prune_running)
    answer = _sent(server(context), request, dry_run=True)
    _show(answer, output, values=True)
    if _is_refused(answer):
        return Code.REFUSED
    return Code.DIFFERENT if differing(answer) else Code.DONE


def export(
    context: typer.Context,
    application: Annotated[str, typer.Option(help="Only this one and its queries.")] = "",
    query: Annotated[str, typer.Option(help="Only this one, with its application.")] = "",
    owner: Annotated[str, typer.Option(help="Only what this owner applied.")] = "",
    to: Annotated[str, typer.Option(help="A folder for the files; else stdout.")] = "",
    output: Annotated[
        Form, typer.Option("--output", "-o", help="yaml or json, on stdout.")
    ] = Form.YAML,
) -> None:
    """Print what is there as manifests, or write them to files. Secrets are masked."""
    narrowed = {"application": application, "query": query, "owner": owner}
    given: Json = {name: value for name, value in narrowed.items() if value}
    found = server(context).get("export", **given)
    held: list[Json] = found["manifests"]
    if not to:
        if output is Form.JSON:
            show_document([one["manifest"] for one in held], output)
        else:
            say("---\n".join(yaml_text(one["manifest"]) for one in held).rstrip("\n"))
        return
    folder = Path(to)
    for one in held:
        path = folder / _inside(str(one["path"]))
        path.parent.mkdir(parents=True, exist_ok=True)
    texts: dict[Path, list[str]] = {}
    for one in held:
        texts.setdefault(folder / _inside(str(one["path"])), []).append(yaml_text(one["manifest"]))
    for path, documents in texts.items():
        path.write_text("---\n".join(documents), encoding="utf-8")
        say(str(path))


def _sent(there: Server, request: Request, *, dry_run: bool) -> Json:
    """Return the answer to a set, also to a refused one; raise `Ended` for other errors."""
    body = {**request.body(there), "dry_run": dry_run}
    answer: Json = there.post("apply", body=body, accept=(REFUSED_SET,))
    if "objects" not in answer:  # the set itself cannot be read
        detail, way_out = str(answer.get("title", "")), str(answer.get("way_out") or "")
        raise Ended(Code.REFUSED, detail, way_out, answer.get("problems") or [])
    return answer


def _show(answer: Json, output: Form, *, values: bool) -> None:
    if output is Form.TABLE:
        show(answer, values=values)
    elif output is Form.NAME:
        for one in differing(answer):
            say(f"{one['kind']}/{one['name']}")
    else:
        show_document(answer, output)


def _is_refused(answer: Json) -> bool:
    return any(one["outcome"] == "refused" for one in answer["objects"])


def _inside(path: str) -> PurePosixPath:
    """Return a path of the server's; refuse one that leads out of the folder."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.parts:
        raise refused(f"The server names {path} as a file, which leads out of the folder.")
    return found
