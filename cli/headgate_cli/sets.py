"""What `apply`, `diff` and `deploy` share: the set that they send, and how they print an answer."""

from dataclasses import dataclass
from typing import Annotated

import typer

from headgate_cli import files
from headgate_cli.ends import problem_lines
from headgate_cli.files import Values
from headgate_cli.output import paint, plain, write
from headgate_cli.packing import upload_code
from headgate_cli.server import Json, Server

ValueFiles = Annotated[
    list[str], typer.Option("--values", help="File of an environment's values; repeat it.")
]
Sets = Annotated[list[str], typer.Option("--set", help="One value, NAME=VALUE; repeat it.")]
Owner = Annotated[
    str,
    typer.Option(
        envvar="HEADGATE_OWNER", help="Whose the objects are; else the repository's name."
    ),
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Remove what the owner's files no longer hold.")
]
PruneRunning = Annotated[
    bool, typer.Option("--prune-running", help="Stop running queries for that first.")
]

_COLOURS = {
    "created": "green",
    "changed": "yellow",
    "pruned": "red",
    "to-be-pruned": "red",
    "refused": "red",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A set as the command line asks for it."""

    names: list[str]
    value_files: list[str]
    values: list[str]
    owner: str
    prune: bool
    prune_running: bool = False

    def body(self, server: Server) -> Json:
        """Return the body of an apply without `dry_run`; code beside manifests is uploaded."""
        found = files.read(self.names)
        values = Values()
        for name in self.value_files:
            values.take_file(name)
        for text in self.values:
            values.take(text)
        owner = files.owner_of(self.owner, found)
        files.warn_of_edits(found)
        upload_code(server, found.files)
        return {
            "owner": owner,
            "source": found.source(),
            "values": values.held,
            "manifests": [{"path": file.path, "text": file.text} for file in found.files],
            "prune": self.prune,
            "prune_running": self.prune_running,
        }


def differing(answer: Json) -> list[Json]:
    """Return the objects of an answer that are not unchanged."""
    return [one for one in answer["objects"] if one["outcome"] != "unchanged"]


def show(answer: Json, *, values: bool) -> None:
    """Print what becomes of each object, and with `values` each field as it was and will be."""
    for one in differing(answer):
        _show_object(one, values=values)
    counts: dict[str, int] = {}
    for one in answer["objects"]:
        counts[one["outcome"]] = counts.get(one["outcome"], 0) + 1
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    write(paint(said or "Nothing to apply.", ""))


def _show_object(one: Json, *, values: bool) -> None:
    outcome = str(one["outcome"])
    at = f"  ({one['path']})" if one.get("path") else ""
    write(paint(f"{outcome:<12}  {one['kind']} {one['name']}{at}", _COLOURS.get(outcome, "")))
    for change in one.get("changes", []):
        if not values:
            write(paint(f"    {change['field']}", ""))
            continue
        if change["before"] is not None:
            write(paint(f"  - {change['field']}: {plain(change['before'])}", "red"))
        if change["after"] is not None:
            write(paint(f"  + {change['field']}: {plain(change['after'])}", "green"))
    drift = one.get("drift")
    if drift:
        fields = ", ".join(plain(change["field"]) for change in drift.get("changes", []))
        write(
            paint(
                f"    edited since the last apply: {fields}. {drift.get('way_out', '')}", "yellow"
            )
        )
    for line in problem_lines(one.get("problems", []), indent="    "):
        write(paint(line, "red"))
