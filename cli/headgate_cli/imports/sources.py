"""Find jobs in files: shell text, systemd units, and kubeflow's manifests."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from headgate_cli.imports import spark_application, spark_submit
from headgate_cli.imports.report import Entry, ImportedJob, masked
from headgate_cli.imports.rules import RULES
from headgate_cli.imports.shell_words import Command, Word, commands
from headgate_cli.output import refused

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_UNIT_LINE = re.compile(r"(?m)^\s*(?P<key>\w+)\s*=(?P<value>(?:\\\n|[^\n])*)$")
#: What Headgate does in place of lines of a unit.
_UNIT_KEYS = {
    "Restart": "Headgate restarts a failed script without limit.",
    "RestartSec": "Set spec.policy.base_delay_s.",
    "User": "Drivers run as Headgate's user.",
    "EnvironmentFile": "Add its variables to spec.env.",
    "WorkingDirectory": "A script has a working directory of its own.",
    "WantedBy": "Set `desired: RUNNING` in the manifest.",
}


def jobs_in(name: str, text: str) -> tuple[list[ImportedJob], list[Entry]]:
    """Return the jobs in a file, and a report of what belongs to none of them.

    Raises `CommandEnded` for a file without jobs, and for text that cannot be read.
    """
    if spark_application.is_manifest(text):
        return spark_application.jobs_in(name, text)
    jobs: list[ImportedJob] = []
    rest: list[Entry] = []
    read = _of_unit if re.search(r"(?m)^\[Service\]", text) else _of_script
    for job in read(name, text, rest):
        jobs.append(job)
    if not jobs:
        raise refused(
            f"{name} contains no spark-submit command and no SparkApplication.",
            "Pass a file with a spark-submit command, a systemd unit, or kubeflow's YAML.",
        )
    return jobs, rest


def _of_script(name: str, text: str, rest: list[Entry]) -> Iterator[ImportedJob]:
    variables: dict[str, tuple[str, str]] = {}
    for command in commands(text):
        words = command.words
        while words and words[0].text in ("export", "declare", "readonly", "local"):
            words = words[1:]
        if words and all(_ASSIGNMENT.fullmatch(word.text) for word in words):
            for word in words:
                variable, value = word.text.split("=", 1)
                variables[variable] = value, word.source
            _leave(rest, command, "It is the default of a parameter, if the job uses it.")
        elif (start := _start(words)) is None:
            _leave(rest, command, _why_not_run(command))
        else:
            job = ImportedJob(f"{name}:{command.line}")
            job.defaults = {
                variable: value
                for variable, (value, _) in variables.items()
                if "${" not in value and not RULES.is_secret(variable, value)
            }
            for word in command.words[: len(command.words) - len(words)]:
                job.leave("Headgate runs no shell.", word.source)
            _read(job, words, start)
            for extra in command.extras:
                job.leave("Headgate runs no shell; logs are kept for each driver.", extra)
            yield job


def _of_unit(name: str, text: str, rest: list[Entry]) -> Iterator[ImportedJob]:
    environment: list[tuple[str, str, str]] = []
    found: list[ImportedJob] = []
    for match in _UNIT_LINE.finditer(text):
        key, value = match["key"], match["value"]
        source = match[0].strip()
        line = text.count("\n", 0, match.start()) + 1
        parsed = (
            [word for command in commands(value.strip(), operators=False) for word in command.words]
            if key in ("ExecStart", "Environment")
            else []
        )
        if key == "Environment":
            for word in parsed:
                variable, _, content = word.text.partition("=")
                environment.append((variable, content, f"Environment={word.source}"))
        elif key == "ExecStart" and (start := _start(parsed)) is not None:
            job = ImportedJob(f"{name}:{line}")
            job.leave("A manifest replaces the unit.", "ExecStart=")
            _read(job, parsed, start)
            found.append(job)
        else:
            reason = _UNIT_KEYS.get(key, "Headgate replaces the unit.")
            rest.append(Entry(masked([" ".join(source.split())]), "", reason))
    for job in found:
        for variable, content, source in environment:
            spark_submit.read_environment(job, variable, content, source)
    yield from found


def _start(words: list[Word]) -> int | None:
    """Return where `spark-submit` is among a command's words; None if it is not."""
    for index, word in enumerate(words):
        if PurePosixPath(word.text.lstrip("@-:+!")).name == spark_submit.COMMAND:
            return index
    return None


def _read(job: ImportedJob, words: list[Word], start: int) -> None:
    for word in words[:start]:
        assignment = _ASSIGNMENT.fullmatch(word.text)
        if assignment:
            spark_submit.read_environment(job, assignment[1], assignment[2], word.source)
        else:
            job.leave("Headgate runs the script itself.", word.source)
    spark_submit.read_command(job, words[start:])


def _leave(rest: list[Entry], command: Command, reason: str) -> None:
    sources = [*(word.source for word in command.words), *command.extras]
    rest.append(Entry((f"line {command.line}:", *masked(sources)), "", reason))


def _why_not_run(command: Command) -> str:
    if any(spark_submit.COMMAND in word.source for word in command.words):
        return "It runs spark-submit within a text or as an argument: import that line by itself."
    return "Headgate runs no shell."
