"""Clone: create a query that continues from the checkpoint of another query, in its own directory.

The clone gets its own id (Spark would otherwise stop the original) and its own sink, unless the
user confirms that both write to the same sink. It is stopped when created.
"""

import copy
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from headgate_ground.masking import unmask
from queries.domain.checkpoints.ownership import local_path
from queries.domain.definitions.locations import NotALocation, canonical, normalized_location
from queries.domain.definitions.spec import FILES
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.kafka.topic_ids import as_json, as_of, ids_of
from queries.domain.states import Verb
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.roles import AuthorRights
from queries.selectors.checkpoints import snapshot_of
from queries.services import local_roots
from queries.services.checkpoints.file_sinks import seed
from queries.services.checkpoints.remote import copy_beside, delete_copy, readable_logs
from queries.services.checkpoints.switching import current
from queries.services.definitions import catalog
from queries.services.definitions.rights import insist_query, parsed
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
)


def request_clone(
    *,
    query: Query,
    name: str,
    actor: str,
    now: datetime,
    sink: dict[str, Any] | None = None,
    same_sink: bool = False,
    batch: int | None = None,
    snapshot_id: int | None = None,
    application: str = "",
    rights: AuthorRights = AuthorRights.SQL,
) -> Operation:
    """Request a new query `name` that continues from `query`'s checkpoint after `batch`.

    A `batch` of None means the newest. `snapshot_id` selects one of the query's snapshots instead
    of its current checkpoint. The clone has `query`'s current definition with the sink `sink`. If
    `sink` is None, `same_sink` must confirm that both write to the same place, which is never
    allowed for a file sink. Unless `application` is given, the clone gets its own application,
    modelled on the original's and owned by the same team.

    Raises `Invalid` with every problem of the new definition, and `Forbidden` if it contains code
    and `rights` do not allow the actor to write it.
    """
    base = current(query) if snapshot_id is None else snapshot_of(query, snapshot_id)
    origin = base.location
    if readable_logs(origin).last_commit() is None:
        raise NotAllowed(
            f"{query.name} has not committed a batch yet.", way_out="Create a new query instead."
        )
    spec = _spec(query, sink, same_sink, own=not application)
    _refuse_another_host(query, application)
    host = None
    if not application:
        host = query.application.revisions.order_by("-number")[0].spec
    used_locations = Checkpoint.objects.values_list("location", flat=True)
    if local_path(origin) is not None:
        location = local_roots.default_checkpoint(name, application, avoid=set(used_locations))
    else:  # beside the original: files are copied only within a storage
        location = f"{current(query).location.rpartition('/')[0]}/{name}"
    definition: dict[str, Any] = {
        "name": name,
        "spec": spec,
        "application": application,
        "application_spec": host,
    }
    stays = application in ("", query.application.name)  # elsewhere, its driver must load it first
    insist_query(rights, parsed(spec), query if stays else None)
    catalog.plan_query(**definition, checkpoint=location, rights=AuthorRights.ALL)
    copied = base if isinstance(base, Checkpoint) else base.checkpoint
    arguments = {
        **definition,
        "origin": origin,
        "checkpoint": copied.pk,
        "batch": batch,
        "location": location,
    }
    return begin(PROCEDURE, query=query, arguments=arguments, actor=actor, now=now)


def _refuse_another_host(query: Query, application: str) -> None:
    """Raise `NotAllowed` if the clone would run on a host that does not have its checkpoint."""
    named = Application.objects.filter(name=application, archived_at=None).first()
    if named is not None and named.host not in ("", query.application.host):
        raise NotAllowed(
            f"Application {named.name} is on host {named.host}, but the copy of the "
            f"checkpoint would be on host {query.application.host or settings.HEADGATE_HOST}.",
            way_out="Do not choose an application; the clone gets its own.",
        )


def _spec(
    query: Query, sink: dict[str, Any] | None, same_sink: bool, *, own: bool
) -> dict[str, Any]:
    spec: dict[str, Any] = copy.deepcopy(query.revisions.order_by("-number")[0].spec)
    before = spec.get("sink")
    if sink is None and not same_sink:
        problem = Problem(
            "sink",
            f"{before['format']} {_path(before)}".strip() if before else "",
            "is the sink of the original, so both would write there.",
            "Give the clone its own sink, or confirm that it writes to the same one.",
        )
        raise Invalid([problem])
    if sink is not None:
        spec["sink"] = unmask({"sink": sink}, before={"sink": before})["sink"]
    after = spec.get("sink") or {}
    if after.get("format") in FILES:
        _refuse_folder(query, before or {}, after)
    if own:
        spec["pool"] = ""  # its own application has no pool
    return spec


def _refuse_folder(query: Query, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise `Invalid` if the clone's files cannot be where its sink writes them."""
    path = _path(after)
    try:
        folder = normalized_location(canonical(path))
    except NotALocation as error:
        raise Invalid([Problem("sink.options.path", path, str(error), error.way_out)]) from error
    with suppress(NotALocation):
        if folder == normalized_location(canonical(_path(before))):
            problem = Problem(
                "sink.options.path",
                path,
                f"is where {query.name} writes; two queries would destroy each other's log there.",
                "Choose a separate folder.",
            )
            raise Invalid([problem])


def _path(sink: dict[str, Any]) -> str:
    options = {key.lower(): value for key, value in (sink.get("options") or {}).items()}
    return str(options.get("path") or options.get("topic") or "")


# --- the steps ----------------------------------------------------------------------------


def _copy(context: StepContext) -> StepResult:
    if "batch" not in context.result:
        origin, to = context.arguments["origin"], context.arguments["location"]
        copied = copy_beside(context, origin, to, context.arguments["batch"], new_id=True)
        if isinstance(copied, StepResult):
            return copied
        context.result["batch"] = copied.batch
    return DONE


def _seed_sink(context: StepContext) -> StepResult:
    """Initialize a new file sink's log at the batch where the clone starts."""
    sink = context.arguments["spec"].get("sink") or {}
    if sink.get("format") not in FILES:
        return DONE
    named = Application.objects.filter(
        name=context.arguments["application"], archived_at=None
    ).first()
    return seed(context, _path(sink), context.result["batch"], named or context.query.application)


def _define(context: StepContext) -> StepResult:
    arguments = context.arguments
    checkpoint = Checkpoint.objects.filter(location=arguments["location"], retired_at=None).first()
    if checkpoint is None:
        with transaction.atomic():
            context.insist()
            clone = catalog.create_query(
                name=arguments["name"],
                spec=arguments["spec"],
                application=arguments["application"],
                application_spec=arguments["application_spec"],
                checkpoint=arguments["location"],
                actor=context.operation.actor,
                now=context.now,
                team=context.query.application.team,
                rights=AuthorRights.ALL,  # checked when it was requested
            )
            # Its checkpoint is local to this host.
            placed = Application.objects.filter(pk=clone.application_id, host="")
            placed.update(host=settings.HEADGATE_HOST)
            _carry_topic_ids(context)
    else:
        clone = checkpoint.query
    context.result["clone"] = clone.name
    return DONE


def _carry_topic_ids(context: StepContext) -> None:
    """Store the topic ids of the copied offsets with the copy."""
    origin = Checkpoint.objects.get(pk=context.arguments["checkpoint"])
    ids = as_json(as_of(ids_of(origin.topic_ids), context.result["batch"]))
    copies = Checkpoint.objects.filter(location=context.arguments["location"], retired_at=None)
    copies.update(topic_ids=ids)


def _undo(context: StepContext) -> StepResult | None:
    location = context.arguments["location"]
    if Checkpoint.objects.filter(location=location, retired_at=None).exists():
        return None
    application = context.query.application
    return delete_copy(location, application, launcher=context.launcher, now=context.now)


PROCEDURE = Procedure(
    Verb.CLONE,
    (
        ProcedureStep("Copy the checkpoint", _copy),
        ProcedureStep("Start the sink's log at the copy's batch", _seed_sink),
        ProcedureStep("Define the clone", _define, commits=True),
    ),
    limit=timedelta(minutes=15),
    undo=_undo,
)
