"""Find jobs in files: shell text, systemd units, kubeflow's manifests, and JSON of Amazon EMR."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from headgate_cli.imports import emr, spark_application, spark_submit
from headgate_cli.imports.report import VALUE, Entry, ImportedJob, masked
from headgate_cli.imports.rules import MASK, RULES
from headgate_cli.imports.shell_words import Command, Word, commands
from headgate_cli.output import refused

_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<adds>\+?)=(?P<value>.*)", re.DOTALL)
#: Words of a shell after which commands run only sometimes or repeatedly, and which end them.
_OPENING, _CLOSING = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")
_UNIT_LINE = re.compile(r"(?P<key>\w+)\s*=\s*(?P<value>.*)")
_KINDS = rf"\bkind[\"']?\s*:\s*[\"']?({'|'.join(spark_application.KINDS)})\b"
#: How YAML with a SparkApplication begins, JSON, and a unit.
_DOCUMENT = re.compile(
    rf"(?:\s|---|\#[^\n]*\n)*(?:(?=[\s\S]*{_KINDS})(?:[\w.\"'-]+:\s|- |{{)|[\[{{]\s*[\[{{\"])"
)
_UNIT = re.compile(r"(?:\s|[#;][^\n]*\n)*\[\w+\]\s")
#: A variable that a shell splits into words.
_UNQUOTED = re.compile(r"\$\{?(\w+)\}?")
_LAUNCH = re.compile(rf"{spark_submit.COMMAND}\b|\baws .*\bemr")
_NO_SHELL = "Headgate runs no shell."
_UNUSED = "No job takes it over."


def jobs_in(name: str, text: str) -> tuple[list[ImportedJob], list[Entry]]:
    """Return the jobs in a file, and a report of what belongs to none of them.

    Raises `CommandEnded` for a file without jobs, and for text that cannot be read.
    """
    rest: list[Entry] = []
    jobs = _jobs(name, text, rest, {})
    if not jobs:
        raise refused(
            f"{name} contains no spark-submit command, SparkApplication or step of EMR.",
            "Pass a file with a spark-submit command, a systemd unit, kubeflow's YAML, or EMR's "
            "JSON.",
        )
    return jobs, rest


def _jobs(
    name: str, text: str, rest: list[Entry], variables: Mapping[str, str], line: int = 1
) -> list[ImportedJob]:
    if _DOCUMENT.match(text):
        return list(_in_documents(name, text, rest))
    if _UNIT.match(text):
        return list(_of_unit(name, text, rest))
    return _of_script(name, text, rest, variables, line)


def _in_documents(name: str, text: str, rest: list[Entry]) -> Iterator[ImportedJob]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        documents = list(YAML(typ="safe", pure=True).load_all(text))
    except (YAMLError, ValueError) as error:
        way_out = "Render templates first, as `helm template` does." if "{{" in text else ""
        message = f"{name} is not valid YAML: {' '.join(str(error).split())}"
        raise refused(message, way_out) from None
    for document in _objects(documents):
        kind = document.get("kind", "") if isinstance(document, dict) else "text"
        try:
            if kind in spark_application.KINDS:
                yield spark_application.job_of(name, document)
            elif emr.is_request(document):
                yield from emr.jobs_of(name, document)
            elif document is not None:
                reason = "Only objects of the Spark operator and EMR's jobs are imported."
                rest.append(Entry((f"{kind}",), "", reason))
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise refused(
                f"{name}: the {kind or 'step'} does not have the form of "
                f"{'the Spark operator' if kind else 'EMR'}.",
                "Check it with `kubectl apply --dry-run=server`." if kind else "",
            ) from None


def _objects(documents: list[Any]) -> Iterator[Any]:
    """Yield the objects in documents, in lists, and in the List that kubectl prints."""
    for document in documents:
        if isinstance(document, list):
            yield from _objects(document)
        elif isinstance(document, dict) and document.get("kind") == "List":
            yield from _objects(list(document.get("items") or ()))
        else:
            yield document


def _of_script(
    name: str, text: str, rest: list[Entry], inherited: Mapping[str, str], line: int
) -> list[ImportedJob]:
    variables = dict(inherited)  # as far as they are literal
    jobs: list[ImportedJob] = []
    others: list[tuple[Command, dict[str, int]]] = []  # with the variables that they assign
    unsure: set[str] = set()  # variables that a condition or a loop sets
    opened: list[int] = []  # the lines of conditions and loops
    checked = 0  # the line of a command on whose success the next one depends
    shell = RULES.replaced["shell"]
    for command in commands(text, line=line):
        words, before = command.words, ""
        while words and (
            words[0].text in shell["keywords"] or (before and words[0].text[0] == "-")
        ):
            before, words = words[0].text, words[1:]
            opened += [command.line] * (before in _OPENING)
            opened = opened[: len(opened) - (before in _CLOSING)]
        under = opened[-1] if opened else checked
        for word in words:
            kept = word.defaults.items()
            word.defaults = {name: value for name, value in kept if name not in unsure}
        found = _within(name, command, rest, variables)
        jobs += found
        assigned: dict[str, int] = {}
        if words and all(_ASSIGNMENT.fullmatch(word.text) for word in words):
            for word in words:
                variable, adds, value = _ASSIGNMENT.fullmatch(word.text).groups()  # type: ignore[union-attr]
                value = _resolved(value, {**word.defaults, **variables})
                start = variables.get(variable, f"${{values.{variable}}}") if adds else ""
                variables[variable], assigned[variable] = start + value, under
                unsure.discard(variable)
            others.append((command, assigned))
        elif started := _started(f"{name}:{command.line}", command, words, variables):
            jobs += started
        else:
            others.append((command, {}))
        unsure |= set(assigned) if under else set()
        unsure |= {words[0].text} if before == "for" and words else set()
        variables = {name: value for name, value in variables.items() if name not in unsure}
        plain = assigned or (words and words[0].text in shell["harmless"])
        is_last = command.extras[-1:] == ["||"] or (command.extras[-1:] == ["&&"] and not plain)
        checked = command.line if is_last else checked * (command.extras[-1:] == ["&&"])
    secrets = {secret for job in jobs for secret in job.secrets}
    for job in jobs:
        job.secrets |= secrets
        job.finish()
    everyone = ImportedJob("", secrets=secrets)
    for command, names in others:
        reason = _use(names, jobs, unsure) if names else _why_not_run(command)
        shown = [word.source for word in command.words]
        if not names:
            shown = RULES.outline(shown)
        elif reason == _UNUSED or any(
            RULES.is_secret(*word.text.split("=", 1)) for word in command.words if "=" in word.text
        ):
            shown = [re.sub("=.*", f"={MASK}", word, flags=re.DOTALL) for word in shown]
        extras = [one if re.fullmatch("[&|;()]+", one) else MASK for one in command.extras]
        tokens = (f"line {command.line}:", *map(everyone.conceal, masked([*shown, *extras])))
        rest.append(Entry(tokens, "", reason))
    return jobs


def _resolved(value: str, variables: Mapping[str, str]) -> str:
    """Return a value with the variables in it that are known."""
    return VALUE.sub(lambda found: variables.get(found[1], found[0]), value)


def _within(
    name: str, command: Command, rest: list[Entry], variables: Mapping[str, str]
) -> list[ImportedJob]:
    """Return the jobs in a command's here-documents and substitutions, which are then no longer
    part of its own words."""
    words, jobs = command.words, list[ImportedJob]()
    printed = words and words[0].text == "cat" and not any(">" in one for one in command.extras)
    documents = [] if printed or _start(words) is not None else command.scripts
    substitutions = [(command.line, script) for word in words for script in word.scripts]
    for line, script in [*documents, *substitutions]:
        others: list[Entry] = []
        if not (_LAUNCH.search(script) or _DOCUMENT.match(script)):
            continue
        if found := _jobs(name, script, others, variables, line):
            jobs += found
            rest += others
            for word in words:
                word.source = word.source.replace(script, "…")
            command.extras = [extra.replace(script, "…") for extra in command.extras]
    return jobs


def _started(
    origin: str, command: Command, words: list[Word], variables: Mapping[str, str]
) -> list[ImportedJob]:
    """Return the jobs that a command starts, with all its words reported; none if it does not."""
    known = {name: value for name, value in variables.items() if "${" not in value}
    expanded = _expanded(words, known)
    if emr.starts_jobs(expanded):
        jobs = list(emr.jobs_of_command(origin, expanded, variables))
    elif (start := _start(expanded)) is not None:
        jobs = [ImportedJob(origin, defaults=dict(variables))]
        _read(jobs[0], expanded, start)
    else:
        return []
    split = [word.source for word in words if word not in expanded]
    jobs[0].resolved |= {found[1] for word in split if (found := _UNQUOTED.fullmatch(word))}
    for word in command.words[: len(command.words) - len(words)]:
        jobs[0].leave(_NO_SHELL, word.source)
    for extra in command.extras:
        logs = f"{_NO_SHELL[:-1]}; logs are kept for each driver."
        is_text = "<<" in extra or "\n" in extra
        jobs[0].leave(logs if ">" in extra else _NO_SHELL, MASK if is_text else extra)
    return jobs


def _expanded(words: list[Word], variables: Mapping[str, str]) -> list[Word]:
    """Return the words with each unquoted variable split that is known to hold options."""
    expanded: list[Word] = []
    for word in words:
        found = _UNQUOTED.fullmatch(word.source)
        value = variables.get(found[1], "") if found else ""
        parts = [part for command in commands(value) for part in command.words]
        expanded += parts if value.startswith("-") and parts else [word]
    return expanded


def _use(names: dict[str, int], jobs: list[ImportedJob], unsure: set[str]) -> str:
    """Return what became of assignments, with the line on which each depends."""
    tokens = " ".join(token for job in jobs for entry in job.entries for token in entry.tokens)
    if any(re.search(rf"\$\{{?{name}\b", tokens) for name in names.keys() & unsure):
        under = max(names.values())
        when = f"It is set only if line {under} applies" if under else "A later line may replace it"
        return f"{when}: which value applies? Fill it in."
    used = {name: default for job in jobs for name, default in job.parameters.items()}
    if any(name in job.resolved for job in jobs for name in names):
        return "Its value is in a job."
    if any(used.get(name) for name in names):
        return "It is the default of a parameter."
    return "It is a parameter to fill in." if used.keys() & names else _UNUSED


def _why_not_run(command: Command) -> str:
    if any(spark_submit.COMMAND in word.source for word in command.words):
        return "It runs spark-submit within a text or as an argument: import that line by itself."
    return _NO_SHELL


def _of_unit(name: str, text: str, rest: list[Entry]) -> Iterator[ImportedJob]:
    environment: list[tuple[str, str, str]] = []
    starts: list[tuple[int, list[Word], int]] = []
    for line, setting in _settings(text):
        match = _UNIT_LINE.fullmatch(setting)
        key, value = (match["key"], match["value"]) if match else ("", "")
        words = _unit_words(value) if key in ("ExecStart", "Environment") else []
        if key == "Environment":
            for word in words:
                variable, _, content = word.text.partition("=")
                environment.append((variable, content, f"Environment={word.source}"))
        elif key == "ExecStart" and (start := _start(words)) is not None:
            starts.append((line, words, start))
        else:
            reason = RULES.way_out("unit", key)
            shown = " ".join(setting.split())
            if key.startswith("Exec"):
                shown = f"{key}={' '.join(RULES.outline(value.split()))}"
            rest.append(Entry(masked([shown]), "", reason))
    for line, words, start in starts:
        job = ImportedJob(f"{name}:{line}")
        job.defaults = {variable: content for variable, content, _ in environment}
        for variable, content, source in environment:
            spark_submit.read_environment(job, variable, content, source)
        job.leave("A manifest replaces the unit.", "ExecStart=")
        _read(job, _expanded(words, job.defaults), start)
        job.finish()
        yield job


def _unit_words(value: str) -> list[Word]:
    """Return the words of a setting; a specifier such as `%i` becomes `${values.INSTANCE}`."""
    names = RULES.replaced["specifiers"]
    words = [word for command in commands(value, operators=False) for word in command.words]
    for word in words:
        word.text = re.sub("%(.)", lambda one: names.get(one[1], f"%{one[1]}"), word.text)
    return words


def _settings(text: str) -> Iterator[tuple[int, str]]:
    """Yield each setting of a unit with its line; comments within a setting come before it."""
    setting, first = "", 0
    for line, part in enumerate([*text.splitlines(), ""], start=1):
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


def _start(words: list[Word]) -> int | None:
    """Return where `spark-submit` is among a command's words; None if it is not."""
    for index, word in enumerate(words):
        if PurePosixPath(word.text.lstrip("@-:+!")).name == spark_submit.COMMAND:
            return index
    return None


def _read(job: ImportedJob, words: list[Word], start: int) -> None:
    shown = RULES.shown([word.source for word in words[:start]])
    for word, source in zip(words, shown, strict=False):
        assignment = _ASSIGNMENT.fullmatch(word.text)
        if assignment:
            value = assignment["value"]
            spark_submit.read_environment(job, assignment["name"], value, word.source)
        else:
            job.leave("Headgate runs the script itself.", source)
    spark_submit.read_command(job, words[start:])
