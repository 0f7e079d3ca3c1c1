"""`import`: manifests from the ways in which people start PySpark jobs today."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate_cli import files
from headgate_cli.commands.manifests import is_rejected, send_set, show_answer
from headgate_cli.imports.report import ImportedJob
from headgate_cli.imports.sources import jobs_in
from headgate_cli.output import ExitCode, OutputForm, note, print_result, refused, yaml_text
from headgate_cli.sets import Owner, Request, Sets, ValueFiles, differing, server

#: The largest file that is read, in bytes; real ones have a few kB.
LARGEST_FILE = 1024 * 1024
#: Where the parameters of imported jobs are written: without a suffix, as `apply -f FOLDER` reads
#: each .yaml file as a manifest.
VALUES_FILE = "values"
#: What no command line contains.
UNKNOWN = (
    "not known from here: the script's queries with their checkpoints, sinks and triggers; "
    "the application's page shows them once it has started"
)

NO_MASTER = "spec.master: not in the input, so tasks run within the driver (local[2])"


def import_jobs(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Shell scripts, systemd units, EMR's JSON, SparkApplications; - for stdin.",
        ),
    ],
    to: Annotated[str, typer.Option(help="Folder for the manifests; default: stdout.")] = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="Show what would change, then apply; needs --to.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    value_files: ValueFiles = [],  # noqa: B006  # typer copies it
    values: Sets = [],  # noqa: B006
    owner: Owner = "",
) -> int:
    """Turn spark-submit commands, units, EMR steps and SparkApplications into manifests.

    Nothing in the files is run, and without --apply nothing is sent. The report on stderr lists
    each word of the input: the field that it became, or why it was not taken over.
    """
    if apply and not to:
        raise refused("--apply needs the manifests in a folder.", "Add --to FOLDER.")
    jobs = _unique([job for path in paths for job in _read(path)])
    runnable = [job for job in jobs if job.is_runnable]
    if not runnable:
        raise refused("None of the jobs can be imported.", "The report shows why.")
    written = _write(runnable, Path(to)) if to else _print(runnable)
    if left := len(jobs) - len(runnable):
        note(f"{left} of {len(jobs)} jobs cannot be imported; the report shows why.")
    outcome = ExitCode.REFUSED if left else ExitCode.DONE
    if not apply:
        return outcome
    request = Request(written, value_files=value_files, values=values, owner=owner)
    api = server(context)
    for dry_run in (True, False):
        answer = send_set(api, request, dry_run=dry_run)
        show_answer(answer, OutputForm.TABLE, values=dry_run)
        if is_rejected(answer):
            return ExitCode.REFUSED
        if dry_run and not differing(answer):
            break
        if dry_run and not yes:
            typer.confirm("Apply?", abort=True, err=True)
    return outcome


def _read(path: str) -> list[ImportedJob]:
    """Return the jobs in a file, after reporting each of its words."""
    jobs, others = jobs_in(path, _text(path))
    for job in jobs:
        note(f"{job.origin}: {job.name or 'no job'}")
        for entry in job.entries:
            note(f"  {entry}")
        if job.is_runnable:
            if "master" not in job.spec:
                note(f"  {NO_MASTER}")
            note(f"  {UNKNOWN}")
        for name, default in job.parameters.items():
            shown = f" (default in the file: {default})" if default else ""
            note(f"  parameter to fill in: {name}{shown}")
    if others:
        note(f"{path}: not part of a job")
        for entry in others:
            note(f"  {entry}")
    return jobs


def _text(path: str) -> str:
    try:
        if path == files.STDIN:
            content = sys.stdin.buffer.read(LARGEST_FILE + 1) if sys.stdin is not None else b""
        else:
            with Path(path).open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise refused(f"{path} is larger than 1 MiB.", "Pass only the text with the command.")
        return content.decode()
    except UnicodeDecodeError:
        raise refused(f"{path} is not valid UTF-8.") from None
    except OSError as error:
        raise refused(f"{path} cannot be read: {error.strerror}.") from None


def _unique(jobs: list[ImportedJob]) -> list[ImportedJob]:
    """Return the jobs; a name that another job has, or a secret that has another value in it,
    gets a number behind it."""
    names: set[str] = set()
    bound: dict[str, str] = {}
    for job in jobs:
        for secret, value in job.bound.items():
            name, number = secret, 2
            while bound.setdefault(name, value) != value:
                name, number = f"{secret}_{number}", number + 1
            if name != secret:
                job.rename_secret(secret, name)
                note(f"{job.name}: its env:{secret} has another value, so it is env:{name} there.")
        name, number = job.name, 2
        while job.name in names:
            job.name, number = f"{name}-{number}", number + 1
        names.add(job.name)
    return jobs


def _print(jobs: list[ImportedJob]) -> list[str]:
    print_result("---\n".join(yaml_text(job.manifest()) for job in jobs).rstrip("\n"))
    return []


def _write(jobs: list[ImportedJob], folder: Path) -> list[str]:
    """Write a file for each job, and one for their parameters; return the manifests' paths.

    Raises `CommandEnded` before anything is written if a file exists with other contents.
    """
    texts = {folder / f"{job.name}.yaml": yaml_text(job.manifest()) for job in jobs}
    parameters: dict[str, str] = {}
    for job in jobs:
        for name, value in job.parameters.items():
            if parameters.setdefault(name, value) != value:
                note(f"{VALUES_FILE}: {name} differs between the jobs; fill it in for each.")
                parameters[name] = ""
    manifests = [str(path) for path in texts]
    if parameters:
        texts[folder / VALUES_FILE] = yaml_text(parameters)
    for path, text in texts.items():
        if path.exists() and path.read_bytes() != text.encode():
            raise refused(f"{path} exists.", "Choose another folder, or remove the file.")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
        print_result(str(path))
    return manifests
