"""Find a query's sink when its checkpoint is switched."""

import re

from listeners.models import Latest
from queries.checkpoints.file_sink import FileSink
from queries.domain.definitions.spec import FILES
from queries.domain.errors import NotAllowed
from queries.models.definitions import Query

#: Spark's name for a file sink in progress events.
_DESCRIBED = re.compile(r"FileSink\[(.+)\]")


def sink_of(query: Query) -> tuple[str, str]:
    """Return the (format, path or topic) of the query's last sink; "" if unknown.

    This is the sink of the newest run, not that of a revision that has never run.
    """
    run = query.runs.select_related("revision").order_by("-epoch").first()
    revision = run.revision if run else query.revisions.order_by("-number").first()
    sink = (revision.spec.get("sink") if revision else None) or {}
    if sink:
        options = {name.lower(): value for name, value in (sink.get("options") or {}).items()}
        return sink["format"], options.get("path") or options.get("topic") or ""
    found = _DESCRIBED.search(_described(query))
    return ("file", found[1]) if found else ("", "")


def file_sink(query: Query) -> FileSink | None:
    """Return the file sink whose log belongs to the query's checkpoint; None for other sinks."""
    kind, path = sink_of(query)
    return FileSink.at(path) if path and (kind == "file" or kind in FILES) else None


def refuse_remote_sink(query: Query) -> None:
    """Raise `NotAllowed` if the query's sink writes files that are not on a local disk.

    Its log cannot be changed from here, and Spark silently skips batches that the log contains: the
    rows that they write again would be lost.
    """
    kind, path = sink_of(query)
    if path and (kind == "file" or kind in FILES) and FileSink.at(path) is None:
        raise NotAllowed(
            f"{query.name} writes files to {path}, whose log Headgate cannot roll back.",
            way_out="Give the query a new folder for its output, or clone it with one.",
        )


def _described(query: Query) -> str:
    latest = Latest.objects.filter(query=query.pk).first()
    sink = (latest.progress or {}).get("sink") if latest else None
    return str((sink or {}).get("description", ""))
