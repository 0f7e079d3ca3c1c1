"""Turn kubeflow's `SparkApplication` and `ScheduledSparkApplication` into jobs.

Fields: `api/v1beta2` of the Spark operator.
"""

import re
from collections.abc import Iterator
from typing import Any

from headgate_cli.imports.report import MASK, Entry, ImportedJob, application_name
from headgate_cli.imports.rules import RULES
from headgate_cli.imports.spark_submit import (
    read_conf,
    read_environment,
    read_option,
    read_program,
)
from headgate_cli.output import refused
from headgate_cli.server import Json

KINDS = ("SparkApplication", "ScheduledSparkApplication")
#: Fields that mean the same as an option of spark-submit.
_OPTIONS = {
    "driver.memory": "--driver-memory",
    "driver.cores": "--driver-cores",
    "executor.memory": "--executor-memory",
    "executor.cores": "--executor-cores",
    "executor.instances": "--num-executors",
}
_LISTS = {
    "packages": "--packages",
    "pyFiles": "--py-files",
    "files": "--files",
    "jars": "--jars",
    "repositories": "--repositories",
    "excludePackages": "--exclude-packages",
    "archives": "--archives",
}
_NO_NAMESPACE = "Headgate has no namespaces and annotations."
#: Fields that mean the same as a key of Spark's configuration.
_DYNAMIC = {
    f"dynamicAllocation.{name}": f"spark.dynamicAllocation.{name}"
    for name in ("enabled", "initialExecutors", "minExecutors", "maxExecutors")
} | {"dynamicAllocation.shuffleTrackingTimeout": "spark.dynamicAllocation.shuffleTracking.timeout"}
#: Times of the operator's library for cron as five fields.
_NAMED_TIMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
#: What replaces a field, by the beginning of its path.
_LEFT = {
    "image": "Drivers run in the environment of their worker.",
    "mode": "Headgate runs the driver on a worker, so that it can be watched and restarted.",
    "restartPolicy": "Headgate restarts a failed script without limit: see spec.policy.",
    "driver": "The driver runs on a worker and not in a pod.",
    "executor": "Set it with spark.kubernetes.executor.… in spec.conf, if it is allowed there.",
    "volumes": "The driver runs on a worker and not in a pod.",
    "monitoring": "Headgate has metrics of its own: docs/metrics.md.",
    "hadoopConf": "",
    "apiVersion": "The manifest's own is headgate/v1.",
    "status": "It is not part of the definition.",
}


def is_manifest(text: str) -> bool:
    """Return whether a text holds objects of the Spark operator."""
    return re.search(rf"\bkind[\"']?\s*:\s*[\"']?({'|'.join(KINDS)})\b", text) is not None


def jobs_in(name: str, text: str) -> tuple[list[ImportedJob], list[Entry]]:
    """Return the jobs in a file; raise `CommandEnded` for text that is not valid YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        documents = list(YAML(typ="safe", pure=True).load_all(text))
    except (YAMLError, ValueError) as error:
        raise refused(f"{name} is not valid YAML: {' '.join(str(error).split())}") from None
    jobs: list[ImportedJob] = []
    rest: list[Entry] = []
    for document in _objects(documents):
        if isinstance(document, dict) and document.get("kind") in KINDS:
            try:
                jobs.append(_job(name, document))
            except (AttributeError, TypeError, ValueError, RecursionError):
                raise refused(
                    f"{name}: the {document['kind']} does not have the form of the Spark operator.",
                    "Check it with `kubectl apply --dry-run=server`.",
                ) from None
        elif document is not None:
            kind = document.get("kind", "") if isinstance(document, dict) else "text"
            rest.append(Entry((f"{kind}",), "", "Only objects of the Spark operator are imported."))
    return jobs, rest


def _objects(documents: list[Any]) -> Iterator[Any]:
    """Yield the objects in documents, in lists, and in the List that kubectl prints."""
    for document in documents:
        if isinstance(document, list):
            yield from _objects(document)
        elif isinstance(document, dict) and document.get("kind") == "List":
            yield from _objects(list(document.get("items") or ()))
        else:
            yield document


def _job(name: str, document: Json) -> ImportedJob:
    metadata = _mapping(document.get("metadata"))
    title = str(metadata.pop("name", "") or metadata.pop("generateName", "job"))
    job = ImportedJob(f"{name}: {document['kind']} {title}", application_name(title))
    read_option(job, "--name", title, (f"metadata.name: {title}",))
    job.leave("A manifest of Headgate replaces it.", f"kind: {document['kind']}")
    for path, value in _leaves(metadata, "metadata."):
        reason = "Set labels in the manifest's metadata." if "labels" in path else _NO_NAMESPACE
        job.leave(reason, f"{path}: {value}")
    spec = _mapping(document.get("spec"))
    if document["kind"] == "ScheduledSparkApplication":
        spec = _read_schedule(job, spec)
    others = {
        key: value for key, value in document.items() if key not in ("kind", "metadata", "spec")
    }
    for path, value in _leaves(others, ""):
        job.leave(_LEFT.get(path.split(".")[0], "It is not part of the job."), f"{path}: {value}")
    _read_spec(job, spec)
    job.finish()
    return job


def _read_spec(job: ImportedJob, spec: Json) -> None:
    program = [str(spec.pop("mainApplicationFile", "") or "")]
    arguments = _strings(spec.pop("arguments", None))
    master = str(_mapping(spec.get("sparkConf")).get("spark.master", ""))
    if master:
        job.spec["master"] = master
    for key in ("sparkConf", "hadoopConf"):
        prefix = "spark.hadoop." if key == "hadoopConf" else ""
        for name, value in _mapping(spec.pop(key, None)).items():
            text = _text(value)
            read_conf(job, f"{prefix}{name}={text}", (f"{key}: {name}={text}",))
    dependencies = _mapping(spec.pop("deps", None))
    for key, option in _LISTS.items():
        values = dependencies.pop(key, None)
        if values:
            text = ",".join(_strings(values))
            read_option(job, option, text, (f"deps.{key}", text))
    for path, value in _leaves({"deps": dependencies} if dependencies else {}, ""):
        job.leave("Connectors bring their dependencies.", f"{path}: {value}")
    driver = spec["driver"] = _mapping(spec.get("driver"))
    _read_environment(job, driver)
    for path, value in _leaves(spec, ""):
        token = f"{path}: {value}"
        if path in _OPTIONS:
            read_option(job, _OPTIONS[path], str(value), (token,))
        elif path == "sparkVersion":
            version = ".".join(str(value).split(".")[:2])
            if version in RULES.sparks:
                job.take("spark", version, token)
            else:
                choices = ", ".join(RULES.sparks)
                job.leave(f"Headgate runs Spark {choices}: choose one in spec.spark.", token)
        elif path == "type" and value == "Python":
            job.leave("Every job is Python.", token)
        elif path in ("type", "mainClass"):
            job.leave("Only Python is supported.", token)
        elif path in _DYNAMIC:
            read_conf(job, f"{_DYNAMIC[path]}={value}", (token,))
        elif path == "restartPolicy.type" and value != "Always":
            job.leave(f"Headgate restarts a failed script without limit, unlike {value}.", token)
        else:
            reason = _LEFT.get(path.split(".")[0], "Headgate has no such field.")
            job.leave(reason, token)
    program_token = (program[0], f"mainApplicationFile: {program[0]}")
    read_program(job, [program_token, *((text, text) for text in arguments)])


def _read_schedule(job: ImportedJob, spec: Json) -> Json:
    """Take over when it runs; return the job's own spec."""
    template = _mapping(spec.pop("template", None))
    token = f"schedule: {spec.get('schedule', '')}"
    zoned = re.fullmatch(r"(?:(?:CRON_)?TZ=(\S+)\s+)?(.*)", str(spec.pop("schedule", "")).strip())
    cron = _five_fields(zoned[2]) if zoned else ""
    if cron and zoned:
        job.take("schedule.cron", cron, token)
        if zoned[1]:
            job.spec["schedule"]["time_zone"] = zoned[1]
    else:
        job.leave(
            "Without it, the script runs continuously: write five fields of cron in "
            "spec.schedule.cron.",
            token,
        )
    zone = spec.pop("timeZone", "")
    if zone and "schedule" in job.spec:
        job.take("schedule.time_zone", str(zone), f"timeZone: {zone}")
    elif zone:
        job.leave("It belongs to spec.schedule.cron.", f"timeZone: {zone}")
    policy = spec.pop("concurrencyPolicy", "")
    if policy == "Forbid" and "schedule" in job.spec:
        job.take("schedule.overlap", "skip", f"concurrencyPolicy: {policy}")
    elif policy:
        job.leave(
            "A script never runs twice at a time: choose skip or queue.",
            f"concurrencyPolicy: {policy}",
        )
    for path, value in _leaves(spec, ""):
        reason = (
            "Applying the manifest starts nothing; pause its schedule on its page."
            if path == "suspend"
            else "Headgate keeps its own history of runs."
        )
        job.leave(reason, f"{path}: {value}")
    return template


def _read_environment(job: ImportedJob, driver: Json) -> None:
    """Take over the driver's variables, and remove them from it."""
    for name, value in _mapping(driver.pop("envVars", None)).items():
        read_environment(job, str(name), _text(value), f"driver.envVars: {name}={_text(value)}")
    for variable in driver.pop("env", None) or ():
        name, value = str(variable.get("name", "")), variable.get("value")
        origin = _mapping(variable.get("valueFrom"))
        leaves = " ".join(str(leaf) for _, leaf in _leaves(origin, ""))
        token = f"driver.env: {name} from {' '.join(origin)} {leaves}"
        if value is not None:
            read_environment(job, name, _text(value), f"driver.env: {name}={_text(value)}")
        elif "secretKeyRef" in origin:
            remark = f"an admin binds the secret env:{name}"
            job.take(f"env.{name}", f"env:{name}", token, remark=remark)
        else:
            job.leave("Set spec.env to its value.", token)


def _five_fields(text: str) -> str:
    """Return a time as five fields of cron; "" if they cannot express it."""
    every = re.fullmatch(r"@every (\d{1,2})([mh])", text)
    if every:
        count, whole = int(every[1]), 60 if every[2] == "m" else 24
        if count and whole % count == 0:
            return f"*/{count} * * * *" if every[2] == "m" else f"0 */{count} * * *"
    fields = _NAMED_TIMES.get(text, text)
    return fields if len(fields.split()) == 5 else ""


def _strings(values: Any) -> list[str]:
    """Return a list's elements as the operator reads them; raise `ValueError` for another value."""
    if values is not None and not isinstance(values, list):
        raise ValueError(values)
    return [_text(value) for value in values or ()]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each leaf; a variable's name and value are one."""
    if isinstance(value, dict) and {"name", "value"} <= value.keys():
        name, text = str(value["name"]), _text(value["value"])
        secret = RULES.is_secret(name, text)
        yield path, f"{name}={MASK if secret else text}"
        others = {key: part for key, part in value.items() if key not in ("name", "value")}
        yield from _leaves(others, path) if others else ()
    elif isinstance(value, dict) and value:
        prefix = f"{path}." if path and not path.endswith(".") else path
        for name, part in value.items():
            yield from _leaves(part, f"{prefix}{name}")
    elif isinstance(value, list) and value:
        for index, part in enumerate(value):
            yield from _leaves(part, f"{path}.{index}")
    elif path:
        yield path, _text(value)


def _mapping(value: Any) -> Json:
    return dict(value) if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
