"""A failure's message as causes and folded frames, and a query's driver logs.

Spark's messages contain a Python traceback, a JVM stack with its `Caused by`, and often both
nested; the line that matters is near the end, below hundreds of lines that do not.
"""

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.access import Act
from queries.domain.errors import Missing
from queries.domain.failures.error_text import Level, bounded
from queries.launchers.configured import launcher
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.roles import VIEW
from queries.selectors.definitions.definitions import query as living_query
from queries.selectors.supervision.history import drivers_of_query, run_with_neighbours
from queries.services.access.audit import record_act
from queries.services.failures import LogElsewhere, log_page, whole_log
from queries.views.console.fragments import whole
from queries.views.console.shell import actor_and_now, needs
from queries.views.supervision.query_page import head

_CAUSED_BY = re.compile(
    r"^\s*(Caused by: |The above exception was the direct cause|During handling of the above)"
)
_FRAME = re.compile(r'^(\s+at |\s+File "[^"]*", line \d+|\s+\.\.\. \d+ (more|common frames))')
_THEIRS = re.compile(
    r"\bat (org\.apache\.|java\.|javax\.|jdk\.|sun\.|scala\.|py4j\.|com\.sun\.|io\.netty\.)"
    r"|\bat org\.sparkproject\."
    r'|File "[^"]*(site-packages|dist-packages|/pyspark/|/py4j/|/lib/python3)'
    r"|File \"<frozen |\.\.\. \d+ (more|common frames)"
)


@dataclass(slots=True)
class Frames:
    """Consecutive frames: the user's own, or a library's (shown folded)."""

    own: bool
    lines: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Return the number of frames in these lines."""
        return sum(bool(_FRAME.match(line)) for line in self.lines)

    @property
    def text(self) -> str:
        """Return the lines as one string."""
        return "\n".join(self.lines)


@dataclass(slots=True)
class StackCause:
    """One exception in a chain: its message and where it was raised."""

    head: str
    frames: list[Frames] = field(default_factory=list)

    @property
    def first_line(self) -> str:
        """Return the most informative line, for a folded header."""
        return self.head.splitlines()[0][:300] if self.head else ""

    @property
    def long(self) -> bool:
        """Return whether to fold the header (Spark prints plans into messages)."""
        return len(self.head) > 600 or self.head.count("\n") > 8


def causes(text: str) -> list[StackCause]:
    """Return the exceptions in a message, root cause first."""
    chain: list[StackCause] = []
    for block in _blocks(bounded(text).expandtabs(4).splitlines()):
        start = next((i for i, line in enumerate(block) if _FRAME.match(line)), len(block))
        head = "\n".join(block[:start]).strip().removeprefix("Caused by: ")
        frames = _frames(block[start:])
        if head or frames:
            chain.append(StackCause(head, frames))
    return chain[::-1]


def _blocks(lines: list[str]) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if _CAUSED_BY.match(line):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _frames(lines: list[str]) -> list[Frames]:
    frames: list[Frames] = []
    for line in lines:
        if not line.strip():
            continue
        if _FRAME.match(line):
            own = not _THEIRS.search(line)
            if not frames or frames[-1].own is not own:
                frames.append(Frames(own))
        elif not line.startswith((" ", "\t")):  # the exception below the frames of a traceback
            frames.append(Frames(True))
        frames[-1].lines.append(line)
    return frames


LEVELS = {level.name.lower(): level for level in (Level.INFO, Level.WARN, Level.ERROR)}
#: A linked line is at least this many bytes before the end of what is shown.
AFTER_A_LINE = 32 * 1024
LONGEST_WORDS = 200


@needs(VIEW)
def log_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show log lines from one of the query's drivers: the newest, or those around a linked line."""
    context = head(request, name, "query-log")
    context |= _shown(request, context["query"], _number(request, "before"), None)
    return render(request, "supervision/queries/log.html", context)


@needs(VIEW)
def run_log(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show the log of a run's driver."""
    run = run_with_neighbours(run_id=run_id).run
    if run.query.archived_at is not None:
        raise Missing(f"{run.query.name} was deleted together with its log.")
    address = reverse("query-log", args=[run.query.name])
    return redirect(f"{address}?{urlencode({'driver': run.driver.epoch})}")


@needs(VIEW)
def log_lines(request: HttpRequest, name: str) -> HttpResponse:
    """Return the lines written after a position, for a page that follows the log."""
    after = _number(request, "after")
    context = _shown(request, living_query(name), None, 0 if after is None else after)
    return render(request, "supervision/queries/_log_lines.html", context)


@needs(VIEW)
def log_download(request: HttpRequest, name: str) -> HttpResponseBase:
    """Return a driver's complete log as a file, masked as everywhere else."""
    driver = _driver(drivers_of_query(living_query(name)), _number(request, "driver"))
    if driver is None:
        raise Missing(f"{name} has not had a driver yet.")
    parts = whole_log(driver, launcher=launcher())
    record_act(
        Act.EXPORTED, subject=name, what="log", driver=driver.epoch, **actor_and_now(request)
    )
    first = next(parts, "")  # a log on another host is reported before anything is sent

    def text() -> Any:
        yield first
        yield from parts

    answer = StreamingHttpResponse(text(), content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}-driver-{driver.epoch}.log"'
    return answer


def _shown(
    request: HttpRequest, query: Query, before: int | None, after: int | None
) -> dict[str, Any]:
    """Return the requested lines and the URLs of the adjacent ones."""
    drivers = drivers_of_query(query)
    driver = _driver(drivers, _number(request, "driver"))
    words = request.GET.get("q", "").replace("\x00", "").strip()[:LONGEST_WORDS]
    level = request.GET.get("level", "")
    at = _number(request, "at")
    context: dict[str, Any] = {
        "drivers": drivers,
        "driver": driver,
        "words": words,
        "level": level if level in LEVELS else "",
        "levels": list(LEVELS),
        "at": at,
        "shared": not query.application.own,
        "now": timezone.now(),
    }
    if driver is None:
        return context
    if at is not None and before is None:
        before = at + AFTER_A_LINE
    try:
        page = log_page(
            driver,
            launcher=launcher(),
            before=before,
            after=after,
            words=words,
            least=LEVELS.get(level),
        )
    except LogElsewhere as error:
        return context | {"elsewhere": error}
    params = {"driver": driver.epoch, "q": words, "level": context["level"]}
    link_params = {name: value for name, value in params.items() if value}
    newest = before is None  # what is written next follows what is shown
    follow = newest and driver.ended_at is None
    lines = reverse("query-log-lines", args=[query.name])
    return context | {
        "page": page,
        "kept": urlencode(link_params),
        "log": reverse("query-log", args=[query.name]),  # lines are also shown on a run's page
        "link": urlencode({"driver": driver.epoch}),
        "older": urlencode(link_params | {"before": page.older}) if page.older is not None else "",
        "follow": f"{lines}?{urlencode(link_params | {'after': page.end})}" if follow else "",
        "newest": newest,
    }


def _driver(drivers: list[Driver], epoch: int | None) -> Driver | None:
    """Return the driver with this epoch among a query's drivers, otherwise the newest."""
    if epoch is None:
        return drivers[0] if drivers else None
    for driver in drivers:
        if driver.epoch == epoch:
            return driver
    raise Missing(
        f"The query has never had a driver with epoch {epoch}.", way_out="Choose one from the list."
    )


def _number(request: HttpRequest, name: str) -> int | None:
    return whole(request.GET.get(name))


urlpatterns = [
    path("queries/<query:name>/log/", log_tab, name="query-log"),
    path("runs/<int:run_id>/log/", run_log, name="run-log"),
    path("queries/<query:name>/log/lines/", log_lines, name="query-log-lines"),
    path("queries/<query:name>/log/download/", log_download, name="query-log-download"),
]
