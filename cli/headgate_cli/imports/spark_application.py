"""Turn kubeflow's `SparkApplication` and `ScheduledSparkApplication` into jobs."""

import re
from collections.abc import Iterator
from typing import Any

from headgate_cli.imports.report import ImportedJob, application_name
from headgate_cli.imports.rules import MASK, RULES
from headgate_cli.imports.spark_submit import (
    Option,
    read_environment,
    read_options,
    read_program,
    read_spark,
)
from headgate_cli.server import Json

KINDS = ("SparkApplication", "ScheduledSparkApplication")


def job_of(name: str, document: Json) -> ImportedJob:
    """Return the job of an object; raise `AttributeError`, `TypeError` or `ValueError` if it does
    not have the form of the Spark operator."""
    metadata, spec = mapping(document.pop("metadata", None)), mapping(document.pop("spec", None))
    title = str(metadata.pop("name", "") or metadata.pop("generateName", "job"))
    job = ImportedJob(f"{name}: {document['kind']} {title}", application_name(title))
    read_options(job, [("--name", title, (f"metadata.name: {title}",))])
    if document["kind"] == "ScheduledSparkApplication":
        spec = _read_schedule(job, spec)
    leave(job, {**document, "metadata": metadata})
    _read_spec(job, spec)
    job.finish()
    return job


def _read_spec(job: ImportedJob, spec: Json) -> None:
    program = str(spec.pop("mainApplicationFile", "") or "")
    arguments = _strings(spec.pop("arguments", None))
    options: list[Option] = [
        ("--conf", f"{prefix}{name}={scalar(value)}", (f"{key}: {name}={scalar(value)}",))
        for key, prefix in (("sparkConf", ""), ("hadoopConf", "spark.hadoop."))
        for name, value in mapping(spec.pop(key, None)).items()
    ]
    spec["deps"] = {
        name: ",".join(_strings(values)) for name, values in mapping(spec.get("deps")).items()
    }
    driver = spec["driver"] = mapping(spec.get("driver"))
    _read_environment(job, driver)
    if "sparkVersion" in spec:
        version = str(spec.pop("sparkVersion"))
        read_spark(job, version, f"sparkVersion: {version}")
    others = {}
    for path, value in leaves(spec):
        option = RULES.replaced["fields"].get(path, "")
        if option.startswith("--"):
            options.append((option, value, (f"{path}:", value)))
        elif option:
            options.append(("--conf", f"{option}={value}", (f"{path}:", value)))
        else:
            others[path] = value
    read_options(job, options)
    leave(job, others)
    read_program(
        job, [(program, f"mainApplicationFile: {program}"), *((text, text) for text in arguments)]
    )


def _read_schedule(job: ImportedJob, spec: Json) -> Json:
    """Take over when it runs; return the job's own spec."""
    template = mapping(spec.pop("template", None))
    time, zone, policy = (
        str(spec.get(name) or "") for name in ("schedule", "timeZone", "concurrencyPolicy")
    )
    zoned = re.fullmatch(r"(?:(?:CRON_)?TZ=(\S+)\s+)?(.*)", time.strip())
    if zoned and (cron := _five_fields(zoned[2])):
        job.take("schedule.cron", cron, f"schedule: {spec.pop('schedule')}")
        if zoned[1]:
            job.spec["schedule"]["time_zone"] = zoned[1]
        if zone:
            job.take("schedule.time_zone", zone, f"timeZone: {spec.pop('timeZone')}")
        if policy == "Forbid":
            token = f"concurrencyPolicy: {spec.pop('concurrencyPolicy')}"
            job.take("schedule.overlap", "skip", token)
    leave(job, spec)
    return template


def _read_environment(job: ImportedJob, driver: Json) -> None:
    """Take over the driver's variables, and remove them from it."""
    variables = [("driver.env:", variable) for variable in driver.pop("env", None) or []]
    for name, reference in mapping(driver.pop("envSecretKeyRefs", None)).items():
        variable = {"name": name, "valueFrom": {"secretKeyRef": reference}}
        variables.append(("driver.envSecretKeyRefs", variable))
    for name, value in mapping(driver.pop("envVars", None)).items():
        read_environment(job, str(name), scalar(value), f"driver.envVars: {name}={scalar(value)}")
    for path, variable in variables:
        name, value = str(variable.get("name", "")), variable.get("value")
        origin = mapping(variable.get("valueFrom"))
        token = f"{path} {name} from {' '.join(origin)} {' '.join(dict(leaves(origin)).values())}"
        if value is not None:
            read_environment(job, name, scalar(value), f"driver.env: {name}={scalar(value)}")
        elif "secretKeyRef" in origin:
            job.take(f"env.{name}", f"env:{name}", token, remark="an admin binds this secret")
        else:
            job.leave(RULES.way_out("left", "driver.env"), token)


def _five_fields(text: str) -> str:
    """Return a time as five fields of cron; "" if they cannot express it."""
    every = re.fullmatch(r"@every (\d{1,2})([mh])", text)
    if every:
        count, whole = int(every[1]), 60 if every[2] == "m" else 24
        if count and whole % count == 0:
            return f"*/{count} * * * *" if every[2] == "m" else f"0 */{count} * * *"
    fields = str(RULES.replaced["times"].get(text, text))
    return fields if len(fields.split()) == 5 else ""


def leave(job: ImportedJob, fields: Json, reason: str = "") -> None:
    """Report fields that are not taken over, each with its value."""
    for path, value in leaves(fields):
        job.leave(reason or RULES.way_out("left", path, value), f"{path}: {value}")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the value of each leaf; a variable's name and value are one."""
    if isinstance(value, dict) and {"name", "value"} <= value.keys():
        name, text = str(value["name"]), scalar(value["value"])
        yield path, f"{name}={MASK if RULES.is_secret(name, text) else text}"
        others = {key: part for key, part in value.items() if key not in ("name", "value")}
        yield from leaves(others, path) if others else ()
    elif isinstance(value, dict) and value:
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        words = RULES.shown([scalar(part) for part in value])
        scalars = not any(isinstance(part, dict | list) for part in value)
        for index, part in enumerate(words if scalars else value):
            yield from leaves(part, f"{path}.{index}" if path else str(index))
    elif value not in ({}, []):
        yield path, MASK if path.endswith("last-applied-configuration") else scalar(value)


def _strings(values: Any) -> list[str]:
    """Return a list's elements as the operator reads them; raise `ValueError` for another value."""
    if values is not None and not isinstance(values, list):
        raise ValueError(values)
    return [scalar(value) for value in values or ()]


def mapping(value: Any) -> Json:
    """Return a copy of a mapping; an empty one for anything else."""
    return dict(value) if isinstance(value, dict) else {}


def scalar(value: Any) -> str:
    """Return a scalar as YAML and JSON write it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
