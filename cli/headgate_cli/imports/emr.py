"""Turn steps of Amazon EMR, and job runs of EMR Serverless and EMR on EKS, into jobs.

They come as options of the `aws` command, or as its JSON.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from headgate_cli.imports.report import ImportedJob
from headgate_cli.imports.shell_words import Word, commands
from headgate_cli.imports.spark_application import leaves, mapping, scalar
from headgate_cli.imports.spark_submit import (
    COMMAND,
    Option,
    read_command,
    read_options,
    read_spark,
)
from headgate_cli.server import Json

#: The options of `aws emr…` that hold jobs.
_JOBS = frozenset({"--steps", "--job-driver"})
_REASON = "It belongs to EMR and not to the job."
#: Releases with a version of Spark that Headgate runs; 6.x and older have Spark 3.4 and older.
#: Source: "Spark release history" of the Amazon EMR Release Guide, up to 7.13.0.
_SPARKS = {"emr-7.": "3.5", "emr-spark-8.0": "4.0"}
#: A field of a step in the short form: `Type=Spark,Name=x,Args=[a,b]`.
_FIELD = re.compile(r"(?:^|,)\s*(Type|Name|Jar|Args|ActionOnFailure|MainClass|Properties)=")
_ELEMENT = re.compile(r"""\s*("[^"]*"|'[^']*'|[^,]*?)\s*(?:,|$)""")
#: Fields that only contain the others.
_AROUND = frozenset({"hadoopjarstep", "jobdriver", "sparksubmit", "sparksubmitjobdriver"})
#: Fields with their names, by the names' lower-case letters: the command's options, its JSON and
#: that of other services write them differently.
Fields = dict[str, tuple[str, Any]]


def is_request(document: Any) -> bool:
    """Return whether an object of JSON describes a step or a job run, or several steps."""
    return not _fields(document).keys().isdisjoint({"steps", "args", "entrypoint"})


def starts_jobs(words: Sequence[Word]) -> bool:
    """Return whether a command is an `aws emr…` that starts jobs."""
    texts = [word.text.partition("=")[0] for word in words]
    return texts[:1] == ["aws"] and not _JOBS.isdisjoint(texts)


def jobs_of_command(
    origin: str, words: Sequence[Word], defaults: Mapping[str, str]
) -> Iterator[ImportedJob]:
    """Yield the jobs of an `aws emr…` command."""
    start = next(index for index, word in enumerate(words) if word.text.startswith("--"))
    request: Json = {"command": " ".join(word.source for word in words[:start])}
    option = ""
    for word in words[start:]:
        defaults = {**defaults, **word.defaults}
        if word.text.startswith("--"):
            option, equals, text = word.text[2:].partition("=")
            values: list[Any] = [text] if equals else []
        else:
            values = _parsed(word.text, is_step=option == "steps")
        request[option] = [*request.get(option, []), *values]
    single = {name: values[0] for name, values in request.items() if len(values) == 1}
    yield from jobs_of(origin, request | single | {"steps": request.get("steps")}, defaults)


def _parsed(text: str, *, is_step: bool) -> list[Any]:
    """Return the objects in an option's value: of JSON, or of the short form of steps."""
    if text.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(text)
        except ValueError:
            return [text]
        return value if isinstance(value, list) else [value]
    if not is_step or not _FIELD.match(text):
        return [text]
    _, *parts = _FIELD.split(text)
    step: Json = dict(zip(parts[::2], parts[1::2], strict=True))
    if "Args" in step:
        elements = _ELEMENT.findall(step["Args"].strip().removeprefix("[").removesuffix("]"))
        step["Args"] = [element.strip("\"'") for element in elements if element]
    return [step]


def jobs_of(
    origin: str, request: Json, defaults: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ImportedJob]:
    """Yield the jobs in a request; raise `TypeError` or `ValueError` if its form is not EMR's."""
    _, steps = (shared := _fields(request)).pop("steps", ("", None))
    for step in steps if isinstance(steps, list) else [steps]:
        job = ImportedJob(origin, defaults=dict(defaults))
        own = _fields(step) if isinstance(step, dict) else {"": ("step", step)} if step else {}
        _read_run(job, own, dict(shared))
        job.finish()
        yield job


def _fields(value: Any) -> Fields:
    fields: Fields = {}
    for name, part in mapping(value).items():
        key = re.sub(r"[^a-z]", "", str(name).lower())
        fields |= _fields(part) if key in _AROUND else {key: (str(name), part)}
    return fields


def _read_run(job: ImportedJob, step: Fields, shared: Fields) -> None:
    """Take over a step with what it shares with others, or a job run, which has no step."""

    def take(key: str) -> tuple[str, Any]:
        return step.pop(key, None) or shared.pop(key, ("", None))

    name, value = take("releaselabel")
    if value:
        sparks = [spark for start, spark in _SPARKS.items() if str(value).startswith(start)]
        read_spark(job, sparks[0] if sparks else str(value), f"{name}: {value}")
    if "name" in (step or shared):
        name, value = take("name")
        read_options(job, [("--name", str(value), (f"{name}: {value}",))])
    arguments = list(map(scalar, take("args")[1] or ()))
    words = [Word(text, text) for text in arguments]
    if words and str(step.get("type", ("", ""))[1]).lower() == "spark":
        name, value = take("type")
        words.insert(0, Word(f"{name}: {value}", COMMAND))
    is_submit = bool(words) and words[0].text.endswith(COMMAND)
    if is_submit and not any(re.match("--master|spark.master", text) for text in arguments):
        job.take("master", "yarn", "master: yarn", remark="EMR's default")
    name, program = take("entrypoint")
    if program:
        parameters = commands(str(take("sparksubmitparameters")[1] or ""))
        arguments = [str(program), *map(scalar, take("entrypointarguments")[1] or ())]
        words = [Word(name, COMMAND), *(word for part in parameters for word in part.words)]
        words += [Word(text, text) for text in arguments]
    settings: list[Option] = []
    for path, text in leaves(dict([*step.values(), *shared.values()])):
        if found := re.fullmatch(r".+\.properties\.(spark\..+)", path, re.IGNORECASE):
            settings.append(("--conf", f"{found[1]}={text}", (f"{found[1]}={text}",)))
        else:
            job.leave(_REASON, f"{path}: {text}")
    if words and words[0].text.endswith(COMMAND):
        read_command(job, words, settings)
    else:
        reason = "Only what runs spark-submit is imported; import files by themselves."
        job.leave(reason, *(word.source for word in words))
