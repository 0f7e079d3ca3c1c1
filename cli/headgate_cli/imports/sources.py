"""Find jobs in files: shell text, systemd units, and kubeflow's manifests."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from headgate_cli.imports import spark_application, spark_submit
from headgate_cli.imports.report import VALUE, Entry, ImportedJob, masked
from headgate_cli.imports.shell_words import Command, Word, commands
from headgate_cli.output import refused

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_UNIT_LINE = re.compile(r"(?P<key>\w+)\s*=\s*(?P<value>.*)")
#: A variable that a shell splits into words.
_UNQUOTED = re.compile(r"\$\{?(\w+)\}?")
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
    variables: dict[str, str] = {}  # as far as they are literal
    assigned: list[tuple[Command, list[str]]] = []
    jobs: list[ImportedJob] = []
    others: list[tuple[Command, str]] = []
    for command in commands(text):
        words = command.words
        while words and words[0].text in ("export", "declare", "readonly", "local"):
            words = words[1:]
        if words and all(_ASSIGNMENT.fullmatch(word.text) for word in words):
            for word in words:
                variable, value = word.text.split("=", 1)
                variables[variable] = _resolved(value, {**word.defaults, **variables})
            assigned.append((command, [word.text.partition("=")[0] for word in words]))
        elif (start := _start(words)) is None:
            others.append((command, _why_not_run(command)))
        else:
            job = ImportedJob(f"{name}:{command.line}")
            job.defaults = {
                variable: value for variable, value in variables.items() if "${" not in value
            }
            for word in command.words[: len(command.words) - len(words)]:
                job.leave("Headgate runs no shell.", word.source)
            _read(job, _expanded(words, job.defaults), start)
            for extra in command.extras:
                job.leave("Headgate runs no shell; logs are kept for each driver.", extra)
            jobs.append(job)
    _finish(jobs, rest, [*((command, _use(names, jobs)) for command, names in assigned), *others])
    yield from jobs


def _resolved(value: str, variables: dict[str, str]) -> str:
    """Return a value with the variables in it that are known."""
    return VALUE.sub(lambda found: variables.get(found[1], found[0]), value)


def _expanded(words: list[Word], variables: dict[str, str]) -> list[Word]:
    """Return the words with each unquoted variable split that is known to hold options."""
    expanded: list[Word] = []
    for word in words:
        found = _UNQUOTED.fullmatch(word.source)
        value = variables.get(found[1], "") if found else ""
        parts = [part for command in commands(value) for part in command.words]
        expanded += parts if value.startswith("-") and parts else [word]
    return expanded


def _use(names: list[str], jobs: list[ImportedJob]) -> str:
    """Return what became of assignments."""
    used = {name for job in jobs for name in job.parameters}
    defaults = {name for job in jobs for name in job.parameters if job.parameters[name]}
    if defaults.intersection(names):
        return "It is the default of a parameter."
    return "It is a parameter to fill in." if used.intersection(names) else "No job takes it over."


def _finish(jobs: list[ImportedJob], rest: list[Entry], others: list[tuple[Command, str]]) -> None:
    """Mask what any job knows as a secret, and report the other commands in their order."""
    secrets = {secret for job in jobs for secret in job.secrets}
    for job in jobs:
        job.secrets |= secrets
        job.finish()
    everyone = ImportedJob("", secrets=secrets)
    for command, reason in sorted(others, key=lambda other: other[0].line):
        sources = [*(word.source for word in command.words), *command.extras]
        tokens = (f"line {command.line}:", *map(everyone.conceal, masked(sources)))
        rest.append(Entry(tokens, "", reason))


def _of_unit(name: str, text: str, rest: list[Entry]) -> Iterator[ImportedJob]:
    environment: list[tuple[str, str, str]] = []
    starts: list[tuple[int, list[Word], int]] = []
    for line, setting in _settings(text):
        match = _UNIT_LINE.fullmatch(setting)
        key = match["key"] if match else ""
        words = []
        if match and key in ("ExecStart", "Environment"):
            value = match["value"].replace("%%", "%")
            words = [word for command in commands(value, operators=False) for word in command.words]
        if key == "Environment":
            for word in words:
                variable, _, content = word.text.partition("=")
                environment.append((variable, content, f"Environment={word.source}"))
        elif key == "ExecStart" and (start := _start(words)) is not None:
            starts.append((line, words, start))
        else:
            reason = _UNIT_KEYS.get(key, "Headgate replaces the unit.")
            rest.append(Entry(masked([" ".join(setting.split())]), "", reason))
    for line, words, start in starts:
        job = ImportedJob(f"{name}:{line}")
        job.defaults = {variable: content for variable, content, _ in environment}
        for variable, content, source in environment:
            spark_submit.read_environment(job, variable, content, source)
        job.leave("A manifest replaces the unit.", "ExecStart=")
        _read(job, _expanded(words, job.defaults), start)
        job.finish()
        yield job


def _settings(text: str) -> Iterator[tuple[int, str]]:
    """Yield each setting of a unit with its line; comments within a setting come before it."""
    setting, first = "", 0
    for line, part in enumerate(text.splitlines(), start=1):
        if part.lstrip().startswith(("#", ";")):
            yield line, part.strip()
            continue
        setting, first = setting + part, first or line
        if setting.endswith("\\"):
            setting = setting[:-1] + " "
            continue
        if setting.strip():
            yield first, setting.strip()
        setting, first = "", 0
    if setting.strip():
        yield first, setting.strip()


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


def _why_not_run(command: Command) -> str:
    if any(spark_submit.COMMAND in word.source for word in command.words):
        return "It runs spark-submit within a text or as an argument: import that line by itself."
    return "Headgate runs no shell."
