"""`apply`, `diff`, `export` and `upload`: desired state and code from files, and back to files."""

import re
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from headgate_cli.files import about, packed, sent, sent_file
from headgate_cli.following import TimeLimit, follow
from headgate_cli.output import (
    CommandEnded,
    ExitCode,
    OutputForm,
    note,
    nothing,
    print_result,
    refused,
    show_document,
    yaml_text,
)
from headgate_cli.server import Json, Server
from headgate_cli.sets import (
    Output,
    Request,
    Timeout,
    Wait,
    application_name,
    differing,
    query_name,
    server,
    show,
    takes_set,
)


def upload(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(exists=True, help="A folder, or one .py, .zip or .whl file.")
    ],
    output: Output = OutputForm.TABLE,
) -> None:
    """Send code, and print its digest, for an application's `code: {upload: sha256:…}`.

    Unreferenced code is removed after a few days.
    """
    api = server(context)
    response = sent(api, packed(path)) if path.is_dir() else sent_file(api, path)
    if output.is_document:
        show_document(response, output)
    else:
        note(f"{path}: {about(response)}")
        print_result(str(response["digest"]))


#: The response to a rejected set, whose body is the same as for an accepted one.
REFUSED_SET = 422


@takes_set
def apply(
    context: typer.Context,
    request: Request,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    wait: Wait = False,
    timeout: Timeout = "10m",
    output: Output = OutputForm.TABLE,
) -> int:
    """Write definitions from files, either all or none.

    Running queries keep their revision until they are restarted or deployed. A folder named by an
    application's `code.upload` is packed and uploaded.
    """
    limit, api = TimeLimit(timeout), server(context)
    answer = send_set(api, request, dry_run=dry_run)
    show_answer(answer, output, values=dry_run)
    if is_rejected(answer):
        return ExitCode.REFUSED
    begun = answer.get("operations", [])
    if begun and not wait:
        several = (
            "1 operation; follow it" if len(begun) == 1 else f"{len(begun)} operations; follow them"
        )
        note(f"Requested: {several} with --wait.")
    if begun and wait:
        return follow(api, (api.get("operations", operation) for operation in begun), limit)
    return ExitCode.DONE


@takes_set
def diff(
    context: typer.Context,
    request: Request,
    output: Output = OutputForm.TABLE,
) -> int:
    """Show what `apply` would change, field by field. Exit code 4 if it would change anything.

    Nothing is written, but code is uploaded, because the changes depend on its digest.
    """
    answer = send_set(server(context), request, dry_run=True)
    show_answer(answer, output, values=True)
    if is_rejected(answer):
        return ExitCode.REFUSED
    return ExitCode.DIFFERENT if differing(answer) else ExitCode.DONE


def export(
    context: typer.Context,
    application: Annotated[
        str, typer.Option(parser=application_name, help="Only this application and its queries.")
    ] = "",
    query: Annotated[
        str, typer.Option(parser=query_name, help="Only this query, with its application.")
    ] = "",
    owner: Annotated[str, typer.Option(help="Only objects applied by this owner.")] = "",
    to: Annotated[str, typer.Option(help="Folder for the files; default: stdout.")] = "",
    output: Output = OutputForm.YAML,
) -> None:
    """Print existing objects as manifests, or write them to files. Secrets are masked."""
    narrowed = {"application": application, "query": query, "owner": owner}
    filters: Json = {name: value for name, value in narrowed.items() if value}
    response = server(context).get("export", **filters)
    manifests: list[Json] = response["manifests"]
    if not manifests:
        note(nothing("manifests", narrowed=bool(filters)))
        return
    if not to:
        if output is OutputForm.NAME:
            for manifest in (exported_object["manifest"] for exported_object in manifests):
                print_result(f"{_word(manifest['kind'])}/{manifest['metadata']['name']}")
        elif output.is_document and output is not OutputForm.YAML:
            show_document([exported_object["manifest"] for exported_object in manifests], output)
        else:
            print_result(
                "---\n".join(
                    yaml_text(exported_object["manifest"]) for exported_object in manifests
                ).rstrip("\n")
            )
        return
    folder = Path(to)
    for exported_object in manifests:
        path = folder / _inside(str(exported_object["path"]))
        path.parent.mkdir(parents=True, exist_ok=True)
    texts: dict[Path, list[str]] = {}
    for exported_object in manifests:
        texts.setdefault(folder / _inside(str(exported_object["path"])), []).append(
            yaml_text(exported_object["manifest"])
        )
    for path, documents in texts.items():
        path.write_text("---\n".join(documents), encoding="utf-8")
        print_result(str(path))


def send_set(api: Server, request: Request, *, dry_run: bool) -> Json:
    """Return the response to a set, even to a rejected one; raise `CommandEnded` otherwise."""
    body = {**request.body(api), "dry_run": dry_run}
    answer: Json = api.post("apply", body=body, accept=(REFUSED_SET,))
    if "objects" not in answer:  # the set itself cannot be parsed
        detail, way_out = str(answer.get("title", "")), str(answer.get("way_out") or "")
        raise CommandEnded(ExitCode.REFUSED, detail, way_out, answer.get("problems") or [])
    return answer


def show_answer(answer: Json, output: OutputForm, *, values: bool) -> None:
    """Print the response to a set; with `values`, each changed field before and after."""
    if output is OutputForm.TABLE:
        show(answer, values=values)
    elif output is OutputForm.NAME:
        for planned_object in differing(answer):
            print_result(f"{planned_object['kind']}/{planned_object['name']}")
    else:
        show_document(answer, output)


def is_rejected(answer: Json) -> bool:
    """Return whether a set was rejected."""
    return any(planned_object["outcome"] == "refused" for planned_object in answer["objects"])


def _inside(path: str) -> PurePosixPath:
    """Return a path from the server; reject a path that leads out of the folder."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise refused(f"The server returned the file name {path}, which is outside the folder.")
    return relative


def _word(kind: str) -> str:
    """Return a manifest's kind as `get` takes it: AlertRule as alert-rule."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind).lower()
