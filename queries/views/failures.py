"""Pages of what went wrong: groups by fingerprint, and one failure with its cause and way out."""

import json
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from queries.domain.failures import Category, Classified, classify, classify_exit
from queries.domain.masking import mask, mask_text
from queries.domain.spec import RestartPolicy
from queries.domain.states import GroupStatus
from queries.models.failures import Failure
from queries.roles import OPERATE, VIEW
from queries.selectors.changes import failure_with_changes
from queries.selectors.incidents import group_counts, newest_failure_of, occurrences
from queries.selectors.lines import progress_line
from queries.selectors.reads import failure_group, failure_groups, failures
from queries.services import resolution
from queries.views.diffs import changes
from queries.views.guard import needs
from queries.views.offsets import offset_text
from queries.views.paging import page_of
from queries.views.shell import next_address
from queries.views.stack import causes
from queries.views.takeover import urlpatterns as takeover_urls
from queries.views.wording import duration_words, rate_words

OCCURRENCES_SHOWN = 25

#: The list's tabs: name in the address -> (words, filter).
TABS: dict[str, tuple[str, dict[str, Any]]] = {
    "open": ("Open", {"status": GroupStatus.OPEN}),
    "regressed": ("Regressed", {"status": GroupStatus.OPEN, "regressed_at__isnull": False}),
    "resolved": ("Resolved", {"status": GroupStatus.RESOLVED}),
    "all": ("All", {}),
}


@require_GET
@needs(VIEW)
def failure_list(request: HttpRequest) -> HttpResponseBase:
    """List the groups of failures, the last seen first; all filters stand in the address."""
    chosen = request.GET.get("status", "open")
    chosen = chosen if chosen in TABS else "open"
    asked = {name: request.GET.get(name, "").strip() for name in ("application", "query")}
    search = request.GET.get("q", "").strip()
    rows = failure_groups(search=search, **asked).filter(**TABS[chosen][1])
    page = page_of(rows, by="last_seen", cursor=request.GET.get("after", ""))
    now = timezone.now()
    bars = occurrences([group.pk for group in page.rows], now=now)
    counts = group_counts()
    context = {
        "page": page,
        "groups": [(group, _bars(bars[group.pk])) for group in page.rows],
        "tabs": [(name, words, counts.get(name)) for name, (words, _) in TABS.items()],
        "chosen": chosen,
        "filters": {**asked, "q": search},
        "filtered": any(asked.values()) or bool(search),
        "counts": counts,
        "now": now,
    }
    return render(request, "failures/list.html", context)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a small chart, in the units of its 96 × 20 picture."""

    x: int
    y: float
    height: float
    count: int


def _bars(counts: list[int]) -> list[Bar]:
    most = max([*counts, 4])
    heights = [max(2.0, 20 * count / most) if count else 0.0 for count in counts]
    return [Bar(4 * i, 20 - h, h, n) for i, (h, n) in enumerate(zip(heights, counts, strict=True))]


@require_GET
@needs(VIEW)
def failure_page(request: HttpRequest, failure_id: int) -> HttpResponseBase:
    """Show one failure: root cause, meaning, way out, evidence, and what changed before it."""
    detail = failure_with_changes(failure_id)
    failure = detail.failure
    siblings = failures().filter(group=failure.group_id)
    context = {
        "detail": detail,
        "failure": failure,
        "group": failure.group,
        "query": failure.run.query if failure.run else None,
        "application": failure.driver.application,
        "advice": advice_of(failure),
        "policy": policy_words(failure),
        "foreign": failure.category == Category.OWNERSHIP and not failure.error_class,
        "message": mask_text(failure.message),
        "root_cause": mask_text(failure.root_cause),
        "log_tail": mask_text(failure.log_tail),
        "causes": causes(mask_text(failure.message)),
        "offsets": _offsets(failure),
        "changes": [
            (change, changes(change.spec_before, change.spec_after) if change.spec_after else [])
            for change in detail.changes
        ],
        "progress": progress_facts(failure.last_progress),
        "progress_json": json.dumps(mask(failure.last_progress), indent=2),
        "conf": sorted(mask(failure.conf).items()),
        "occurrences": siblings[:OCCURRENCES_SHOWN],
        "more": max(0, failure.group.count - OCCURRENCES_SHOWN),
        "now": timezone.now(),
    }
    return render(request, "failures/failure.html", context)


_REFUSED = {
    Category.LOCK: "held",
    Category.FENCED: "fenced",
    Category.OWNERSHIP: "foreign",
}


def advice_of(failure: Failure) -> Classified:
    """Return what a stored failure means and what to do about it."""
    if failure.run is None and not (failure.error_class or failure.error_type):
        return classify_exit(
            python=failure.driver.exit_python or "UNKNOWN",
            jvm=failure.driver.exit_jvm or "UNKNOWN",
            oom=failure.category == Category.MEMORY,
            log_tail=failure.log_tail,
        )
    return classify(
        error_class=failure.error_class,
        type_name=failure.error_type,
        root_cause=failure.root_cause,
        message=failure.message,
        refused=next((word for kind, word in _REFUSED.items() if kind == failure.category), ""),
    )


def policy_words(failure: Failure) -> str:
    """Return the sentence that says what the failure's policy makes supervision do."""
    spec = failure.driver.application_revision.spec
    policy = RestartPolicy(**(spec.get("policy") or {}))
    if failure.policy == "FATAL":
        return "No restart can mend it, so none is tried. It waits for a person's start."
    ladder = (
        f"The first retry comes at once, then after {policy.base_delay_s:g} s, doubling "
        f"up to {policy.max_delay_s:g} s"
    )
    if failure.policy == "POISON":
        return (
            f"{ladder}. The same error on the same batch {policy.poison_limit} times without a "
            f"commit between marks the query as broken; then it probes every "
            f"{policy.probe_every_s / 60:g} min."
        )
    return (
        f"{ladder}, for ever. The count starts anew after {policy.healthy_after_s / 60:g} min "
        "of health."
    )


def progress_facts(progress: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return what a batch's progress says, as (label, value)."""
    if not progress or "batchId" not in progress:
        return []
    line = progress_line(progress)
    return [
        ("Batch", str(line.batch_id)),
        ("Began", f"{line.timestamp:%Y-%m-%d %H:%M:%S} UTC"),
        ("Rows", f"{line.num_input_rows:,}"),
        ("Took", duration_words(line.batch_duration_ms)),
        ("Processed", rate_words(line.processed_rows_per_second)),
        ("Watermark", f"{line.watermark:%Y-%m-%d %H:%M:%S}" if line.watermark else ""),
    ]


def _offsets(failure: Failure) -> list[tuple[str, str, str]]:
    """Return (source, start, end) of the batch in flight, the offsets as JSON."""
    found = []
    for source, ends in failure.offsets.items():
        whole = isinstance(ends, dict) and bool({"start", "end"} & set(ends))
        start, end = (ends.get("start"), ends.get("end")) if whole else (None, ends)
        found.append((source, offset_text(start), offset_text(end)))
    return found


@require_GET
@needs(VIEW)
def group_page(request: HttpRequest, group_id: int) -> HttpResponseBase:
    """Go to the newest failure of a group: its page shows the group as well."""
    newest = newest_failure_of(failure_group(group_id))
    return redirect("failure", newest.pk) if newest else redirect("failures")


@require_POST
@needs(OPERATE)
def resolve(request: HttpRequest, group_id: int) -> HttpResponse:
    """Mark a group as dealt with."""
    group = failure_group(group_id)
    resolution.resolve_group(group=group, actor=request.user.get_username(), now=timezone.now())
    messages.success(request, "Resolved. It reopens by itself if the failure comes back.")
    return redirect(next_address(request, "/failures/"))


@require_POST
@needs(OPERATE)
def reopen(request: HttpRequest, group_id: int) -> HttpResponse:
    """Mark a group as not dealt with after all."""
    group = failure_group(group_id)
    resolution.reopen_group(group=group, actor=request.user.get_username(), now=timezone.now())
    messages.success(request, "Open again.")
    return redirect(next_address(request, "/failures/"))


urlpatterns = [
    path("failures/", failure_list, name="failures"),
    path("failures/<int:failure_id>/", failure_page, name="failure"),
    path("failures/groups/<int:group_id>/", group_page, name="failure-group"),
    path("failures/groups/<int:group_id>/resolve/", resolve, name="failure-resolve"),
    path("failures/groups/<int:group_id>/reopen/", reopen, name="failure-reopen"),
    *takeover_urls,
]
