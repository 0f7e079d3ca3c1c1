"""Reject a start on logs in which EMR recorded files under `s3://` names.

Spark compares the names in a file source's log with those that it lists: it reads all of these
files again under their `s3a://` names or, if the path has no wildcard, fails because a batch has
files of two file systems. Through a file sink's log, readers would look for files under `s3://`.

Source: Spark 4.3 on logs that it wrote itself (tests/spark/test_s3_names.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from queries.checkpoints.source_logs import newest_entries
from queries.domain.checkpoints.logs import file_named_s3
from queries.domain.definitions.spec import FILES
from queries.runtime.build import CONFIGURATION
from queries.runtime.checkpoints.logs import MOST_OF_ENTRY, remote
from queries.runtime.failures.error_capture import StepFailed

_READ_AGAIN = (
    "Spark would read it again, as s3a://. Reset the query; first move files that it must not read "
    "again to another folder"
)
_NOT_READABLE = (
    "it cannot be continued as s3a://, because its readers would not find these files. Clone the "
    "query with another folder for its sink"
)


class NamesDiffer(Exception):
    """A log contains files under names that Spark would not recognize."""


def refuse_s3_names(spark: Any, spec: Mapping[str, Any], checkpoint: str) -> None:
    """Raise `StepFailed` if a definition's files have `s3://` names in a source's or sink's log."""
    options = [part.get("options") or {} for part in spec.get("sources") or ()]
    if paths := [path for one in options if (path := _s3a_path(one))]:
        context = spark.sparkContext
        logs = [
            f"{checkpoint}/sources/{name}" for name in _statuses(context, f"{checkpoint}/sources")
        ]
        _refuse(context, "source", logs, paths, _READ_AGAIN)
    sink = spec.get("sink") or {}
    if sink.get("format") in FILES and (path := _s3a_path(sink.get("options") or {})):
        log = f"{path.rstrip('/')}/_spark_metadata"
        _refuse(spark.sparkContext, "sink", [log], [path], _NOT_READABLE)


def _refuse(context: Any, what: str, logs: list[str], paths: list[str], why: str) -> None:
    for log in logs:
        for text in _entries(context, log):
            if file := file_named_s3(text, paths):
                cause = NamesDiffer(f"the log {log} contains {file}, a name that EMR wrote; {why}")
                raise StepFailed(what, cause, error_class=CONFIGURATION)


def _entries(context: Any, log: str) -> Iterator[str]:
    """Yield the entries of a log, each up to a limit; the oldest files come first."""
    statuses = _statuses(context, log)
    for name in newest_entries(statuses):
        stream = remote(context, log)[0].open(statuses[name].getPath())
        try:
            yield bytes(stream.readNBytes(MOST_OF_ENTRY)).decode("utf-8", "replace")
        finally:
            stream.close()


def _statuses(context: Any, folder: str) -> dict[str, Any]:
    """Return Hadoop's status of each entry of a folder, by name; {} if it does not exist."""
    system, path = remote(context, folder)
    listed = system.listStatus(path) if system.exists(path) else ()
    return {str(status.getPath().getName()): status for status in listed}


def _s3a_path(options: Mapping[str, Any]) -> str:
    path = next((str(value).strip() for key, value in options.items() if key.lower() == "path"), "")
    return path if path.lower().startswith("s3a://") else ""
