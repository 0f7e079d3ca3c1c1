"""Failures: the list of groups, and a page with cause, remedy and evidence."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from headgate_ground.masking import mask
from queries.domain.failures.categories import Category, Remedy
from queries.domain.failures.diagnosis import Classified
from queries.domain.failures.error_text import left_out
from queries.domain.kafka.losses import named_in, touch
from queries.domain.restart import AT_ONCE, RestartPolicy
from queries.domain.states import GroupStatus
from queries.models.history import Failure, FailureGroup
from queries.roles import DEFINE, OPERATE, VIEW, may
from queries.selectors.definitions.definitions import query_definition
from queries.selectors.failures.failures import advice_of, failure_group, failure_groups, failures
from queries.selectors.failures.occurrences import (
    group_counts,
    newest_failure_of,
    occurrences,
    standby_after,
)
from queries.selectors.failures.what_changed import failure_with_changes
from queries.selectors.hosts import logs_at
from queries.selectors.kafka.lag import lag_of, recorded_after, records_in
from queries.selectors.query_lines import ProgressLine, progress_line
from queries.selectors.triggers.replays import replays_of
from queries.services import failures as resolution
from queries.services.failures import mask_failure
from queries.services.supervision import operations
from queries.views.console.fragments import (
    ARRIVALS,
    ROWS,
    Changes,
    Drawn,
    filters,
    filters_from_key,
    fragments,
    keys,
    page_of,
    parts,
    topic,
    whole,
)
from queries.views.console.shell import actor_and_now, needs, next_address
from queries.views.console.wording import duration_words, offset_text, rate_words
from queries.views.definitions.reviews import changes
from queries.views.failures.logs import causes
from queries.views.next_steps import offers

#: The list's tabs: name in the URL -> (label, filter).
TABS: dict[str, tuple[str, dict[str, Any]]] = {
    "open": ("Open", {"status": GroupStatus.OPEN}),
    "regressed": ("Regressed", {"status": GroupStatus.OPEN, "regressed_at__isnull": False}),
    "resolved": ("Resolved", {"status": GroupStatus.RESOLVED}),
    "all": ("All", {}),
}
_FILTERS = ("application", "query", "q")


@needs(VIEW)
def failure_list(request: HttpRequest) -> HttpResponseBase:
    """List the failure groups, most recently seen first; all filters are in the URL."""
    list_filters = _list_filters(request.GET)
    page = page_of(_rows(list_filters), by="last_seen", cursor=request.GET.get("after", ""))
    now = timezone.now()
    counts = group_counts()
    context = {
        "page": page,
        "groups": _with_bars(page.rows, now),
        "tabs": [(name, words, counts.get(name, 0)) for name, (words, _) in TABS.items()],
        "chosen": list_filters["status"],
        "filters": list_filters,
        "filtered": any(list_filters[name] for name in _FILTERS),
        "topic": topic("failures", list_filters),
        "now": now,
    }
    return render(request, "failures/list.html", context)


def _list_filters(params: Mapping[str, str]) -> dict[str, str]:
    return filters(params, _FILTERS, status=TABS)


def _rows(list_filters: Mapping[str, str]) -> QuerySet[FailureGroup]:
    rows = failure_groups(
        search=list_filters["q"],
        application=list_filters["application"],
        query=list_filters["query"],
    )
    return rows.filter(**TABS[list_filters["status"]][1])


@dataclass(frozen=True, slots=True)
class OccurrenceBar:
    """One bar of a small chart, in the units of its 96 × 20 picture."""

    x: int
    y: float
    height: float
    count: int


def _with_bars(
    groups: list[FailureGroup], now: datetime
) -> list[tuple[FailureGroup, list[OccurrenceBar]]]:
    counted = occurrences([group.pk for group in groups], now=now)
    return [(group, _bars(counted[group.pk])) for group in groups]


def _bars(counts: list[int]) -> list[OccurrenceBar]:
    most = max([*counts, 4])
    heights = [max(2.0, 20 * count / most) if count else 0.0 for count in counts]
    return [
        OccurrenceBar(4 * i, 20 - h, h, n)
        for i, (h, n) in enumerate(zip(heights, counts, strict=True))
    ]


@fragments("failures", hears=("group",))
def draw_failures(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the rows of changed groups, new groups, and the counts on the tabs.

    A row is drawn regardless of its status: a group that was resolved elsewhere shows its
    new status in place.
    """
    list_filters = _list_filters(filters_from_key(key))
    rows = failure_groups()
    if changes is None:
        listed_ids = _rows(list_filters)[:ROWS].values_list("pk", flat=True)
        lately = rows[:ROWS].values_list("pk", flat=True)
        groups = rows.filter(pk__in={*listed_ids, *lately})
    else:
        groups = rows.filter(pk__in=keys(changes, "group"))
    for group, bars in _with_bars(list(groups), now):
        context = {"group": group, "bars": bars, "now": now}
        yield f"group-{group.pk}", render_to_string("failures/_row.html", context)
    newest = sorted(
        _rows(list_filters)[:ARRIVALS], key=lambda group: -group.pk
    )  # they keep their order
    context = {"groups": _with_bars(newest, now), "now": now}
    yield "failures-arrived", render_to_string("failures/_arrived.html", context)
    for name, count in group_counts().items():
        context = {"name": name, "count": count}
        yield f"failures-{name}", render_to_string("failures/_count.html", context)


urlpatterns = [path("failures/", failure_list, name="failures")]


OCCURRENCES_SHOWN = 25


@needs(VIEW)
def failure_page(request: HttpRequest, failure_id: int) -> HttpResponseBase:
    """Show one failure: root cause, meaning, remedy, evidence, and what changed before it."""
    detail = failure_with_changes(failure_id)
    failure = mask_failure(detail.failure)
    context = {
        **_moving(failure, timezone.now()),
        "detail": detail,
        "offers": offers(request, failure, detail.good),
        "advice": (advice := advice_of(failure)),
        "lost": (lost := _lost(failure, advice)),
        "to_earliest": (to_earliest := advice.remedy is Remedy.TO_EARLIEST),
        "async_gap": (gap := advice.remedy is Remedy.ASYNC_OFF and _has_sink(failure)),
        "own_act": to_earliest or gap or bool(lost and lost["certain"]),
        "foreign": failure.category == Category.OWNERSHIP and not failure.error_class,
        "causes": causes(failure.message),
        "offsets": _offsets(failure),
        "batch_is_there": (has_batch := _batch_exists(failure)),
        "records_can_be_read": has_batch and _may_read(request, failure),
        "changes": [
            (change, changes(change.spec_before, change.spec_after) if change.spec_after else [])
            for change in detail.changes
        ],
        "progress": progress_facts(failure.last_progress),
        "progress_json": json.dumps(mask(failure.last_progress), indent=2),
        "conf": sorted(mask(failure.conf).items()),
    }
    return render(request, "failures/failure.html", context)


def _has_sink(failure: Failure) -> bool:
    """Return whether the definition contains the sink, so that Headgate can change its options."""
    run = failure.run
    return run is not None and bool(run.revision.spec.get("sink")) and not run.query.discovered


def _batch_exists(failure: Failure) -> bool:
    """Return whether the query's current checkpoint has the batch, so that it can be linked.

    The link leads to the batch's files, so a driver's report on the batch is not enough.
    """
    run = failure.run
    if failure.batch is None or run is None or run.query.archived_at or run.checkpoint.retired_at:
        return False
    location, batch = run.checkpoint.location, failure.batch
    return left_out(lambda: batch in logs_at(location).begun(), False)


def _may_read(request: HttpRequest, failure: Failure) -> bool:
    """Return whether this user may see the batch's records: only authors, and only for SQL."""
    run = failure.run
    return (
        run is not None
        and run.revision.kind == "sql"
        and may(request.user, DEFINE, run.query.application)
    )


def _lost(failure: Failure, advice: Classified) -> dict[str, Any] | None:
    """Return the lost offsets, with the records that they contained; None for other failures."""
    if advice.category is not Category.SOURCE_LOST or failure.run is None:
        return None
    query = failure.run.query
    lag = lag_of(query, now=timezone.now())
    read = named_in(f"{failure.root_cause}\n{failure.message}")
    sources = (
        (recorded_after(failure.at, query), "as recorded in the loss ledger"),
        (lag.gaps, "according to the broker now"),
        (read, "the range that Spark could not read in full"),
    )
    gaps, source_words = next(
        ((gaps, words) for gaps, words in sources if gaps and touch(gaps, read)), ([], "")
    )
    return {
        "gaps": [(gap, records_in(lag, gap)) for gap in gaps],
        "count": sum(gap.offsets for gap in gaps),
        "known_from": source_words,
        "most": gaps == read,
        "certain": lag.certain and touch(lag.gaps, read),
    }


def _moving(failure: Failure, now: datetime) -> dict[str, Any]:
    """Return the parts that can change after a failure: its group, its query, later failures."""
    group = failure.group
    return {
        "failure": failure,
        "group": group,
        "query": failure.run.query if failure.run else None,
        "application": failure.driver.application,
        "policy": policy_words(failure),
        "occurrences": failures().filter(group=group)[:OCCURRENCES_SHOWN],
        "more": max(0, group.count - OCCURRENCES_SHOWN),
        "replays": replays_of(failure),
        "standby": standby_after(failure),
        "now": now,
    }


_MOVING = ("status", "lead", "next", "occurrences")


@fragments("failure", hears=("group", "query"))
def draw_failure(key: str, changes: Changes, now: datetime) -> Drawn:
    """Render the parts of a failure's page that change."""
    failure = failures().filter(pk=whole(key) or 0).first()
    if failure is None or not _concerns(failure, changes):
        return
    yield from parts(_MOVING, "failure", "failures", key, _moving(failure, now))


def _concerns(failure: Failure, changes: Changes) -> bool:
    """Return whether a message is about this failure's group or query."""
    if changes is None or failure.group_id in keys(changes, "group"):
        return True
    return failure.run is not None and failure.run.query_id in keys(changes, "query")


def policy_words(failure: Failure) -> str:
    """Describe how supervision handles the failure under its policy."""
    spec = failure.driver.application_revision.spec
    policy = RestartPolicy(**(spec.get("policy") or {}))
    if failure.policy == "FATAL":
        return (
            "A restart cannot fix this failure, so no retry is attempted until a user requests a "
            "start."
        )
    ladder = (
        f"The first retry is immediate, the next after {policy.base_delay_s:g} s, doubling up to "
        f"{policy.max_delay_s:g} s"
    )
    if failure.category == Category.EVOLVED:
        ladder = (
            f"The first {AT_ONCE} retries are immediate, later ones after a delay that doubles up "
            f"to {policy.max_delay_s:g} s"
        )
    if failure.policy in ("POISON", "LIMITED"):
        same = "on the same batch " if failure.policy == "POISON" else ""
        return (
            f"{ladder}. If the same error occurs {same}{policy.poison_limit} times without a "
            "commit in between, the query is put on hold; then a retry probe runs every "
            f"{policy.probe_every_s / 60:g} min."
        )
    return (
        f"{ladder}; retries continue indefinitely. The failure count resets after "
        f"{policy.healthy_after_s / 60:g} healthy minutes."
    )


def progress_facts(progress: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the facts in a batch's progress, as (label, value)."""
    if not progress or "batchId" not in progress:
        return []
    line = progress_line(progress)
    return [
        ("Batch", str(line.batch_id)),
        ("Began", f"{line.timestamp:%Y-%m-%d %H:%M:%S} UTC"),
        ("Rows", "" if line.num_input_rows is None else f"{line.num_input_rows:,}"),
        ("Duration", duration_words(line.batch_duration_ms)),
        ("Processed", rate_words(line.processed_rows_per_second)),
        ("Watermark", _watermark(line)),
    ]


def _watermark(line: ProgressLine) -> str:
    if line.watermark_note:
        return "after the year 9999"
    return f"{line.watermark:%Y-%m-%d %H:%M:%S}" if line.watermark else ""


def _offsets(failure: Failure) -> list[tuple[str, str, str]]:
    """Return (source, start, end) for the batch in flight, with the offsets as JSON."""
    offsets = []
    for source, ends in failure.offsets.items():
        whole = isinstance(ends, dict) and bool({"start", "end"} & set(ends))
        start, end = (ends.get("start"), ends.get("end")) if whole else (None, ends)
        offsets.append((source, offset_text(start), offset_text(end)))
    return offsets


@needs(VIEW)
def group_page(request: HttpRequest, group_id: int) -> HttpResponseBase:
    """Redirect to a group's newest failure, whose page also shows the group."""
    newest = newest_failure_of(failure_group(group_id))
    return redirect("failure", newest.pk) if newest else redirect("failures")


@needs(OPERATE, "POST")
def resolve(request: HttpRequest, group_id: int) -> HttpResponse:
    """Mark a group as resolved."""
    resolution.resolve_group(group=failure_group(group_id), **actor_and_now(request))
    messages.success(request, "Resolved. It reopens automatically if the failure comes back.")
    return redirect(next_address(request, "/failures/"))


@needs(OPERATE, "POST")
def reopen(request: HttpRequest, group_id: int) -> HttpResponse:
    """Mark a group as open again."""
    resolution.reopen_group(group=failure_group(group_id), **actor_and_now(request))
    messages.success(request, "Reopened.")
    return redirect(next_address(request, "/failures/"))


@needs(DEFINE, "GET", "POST")
def take_over(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the risks of a takeover; confirm it, and start the query."""
    definition = query_definition(name)
    address = reverse("query", args=[name])
    if request.method == "POST":
        operations.confirm_takeover(query=definition.query, **actor_and_now(request))
        messages.success(request, f"{name} takes over its checkpoint and starts.")
        return redirect(address)
    context = {
        "query": definition.query,
        "what": f"Take over the checkpoint of {name}?",
        "consequences": [
            f"The owner file next to {definition.checkpoint} names another Headgate installation.",
            "If that installation still runs the query, both will write: batches are executed "
            "twice and the checkpoint can be damaged. Make sure that it no longer runs there.",
            f"{name} then starts here and continues where the other installation stopped.",
        ],
        "action": request.path,
        "cancel": address,
    }
    return render(request, "failures/takeover.html", context)


urlpatterns += [
    path("failures/<int:failure_id>/", failure_page, name="failure"),
    path("failures/groups/<int:group_id>/", group_page, name="failure-group"),
    path("failures/groups/<int:group_id>/resolve/", resolve, name="failure-resolve"),
    path("failures/groups/<int:group_id>/reopen/", reopen, name="failure-reopen"),
    path("queries/<query:name>/takeover/", take_over, name="query-takeover"),
]
