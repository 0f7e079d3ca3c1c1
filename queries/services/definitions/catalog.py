"""Save single definitions: each save is a set of one, planned and written like a set.

A definition is planned outside the transaction, which then only checks that none of the objects
that it touches has changed, and writes. Otherwise, it is planned again under the lock, with the
answers of Spark's parser and the brokers that are there already.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from django.db import transaction

from controlplane.nudge import changed
from headgate_ground.masking import unmask
from queries.domain.definitions import parsing
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem, StaleRevision
from queries.domain.manifests.forms import Kind, Manifest
from queries.domain.reasons import Because, Detail
from queries.domain.validation.query_rules import name_problems
from queries.models.access.accounts import Team
from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Query, QueryRevision
from queries.roles import AuthorRights
from queries.selectors import manifests
from queries.selectors.manifests import ExistingRows, Moment, as_of_now, look_up
from queries.services.code.git import resolved
from queries.services.definitions.application_plans import plan_applications
from queries.services.definitions.definition_rows import pool_text, record_definition
from queries.services.definitions.items import SetItem
from queries.services.definitions.query_plans import (
    look_for_orphans,
    plan_queries,
    refuse_unchecked,
)
from queries.services.definitions.writing import (
    DefinitionWriter,
    StalePlan,
    one_at_a_time,
    writing,
)
from queries.services.scripts import refuse_discovered

R = TypeVar("R", Query, Application)
V = TypeVar("V", QueryRevision, ApplicationRevision)

#: The part of a manifest that contains a field; a definition's own fields have none.
_MANIFEST_PART = re.compile(r"^(?:spec|metadata)\.")


@dataclass(frozen=True, slots=True)
class Save:
    """A definition that can be saved, and the existing objects that it touches."""

    item: SetItem
    existing_rows: ExistingRows


def plan_application(
    *,
    spec: dict[str, Any],
    name: str = "",
    application: Application | None = None,
    team: Team | None = None,
    expected_revision: int | None = None,
    rights: AuthorRights = AuthorRights.SQL,
    earlier: SetItem | None = None,
) -> Save:
    """Plan a new application, or a change to `application`, without writing.

    A new one without a team belongs to everyone. `rights` are the actor's,
    here and below; a definition that needs others raises `Forbidden`. `earlier` is the
    result of an earlier plan, whose slow look-ups are used again. Raises `Invalid` with every
    problem found, and `StaleRevision` if `expected_revision` is not the newest.
    """
    row = newest = None
    sent = _at_commit(spec, rights, earlier)
    manifest = Manifest(Kind.APPLICATION, application.name if application else name, sent, {})
    existing_rows = look_up([manifest])
    if application is not None:
        row = _living(application, existing_rows.applications)
        newest = _newest(existing_rows.application_revisions[row.pk], expected_revision)
        manifest = replace(
            manifest,
            spec=unmask(sent, before=newest.spec),
            labels=row.labels,
            pools=tuple(manifests.pools_of_state(existing_rows.application_state(row)).values()),
        )
    manifest = replace(manifest, spec=manifests.normal_application(manifest.spec))
    item = SetItem("", Kind.APPLICATION, manifest.name, manifest, row, is_new=row is None)
    item.application_spec, item.team, item.newest = sent, team, newest
    if row is None:
        taken = name in existing_rows.applications
        item.problems += name_problems(name, in_use=taken, what="application")
    hosts = plan_applications([item], existing_rows, rights=rights)
    look_for_orphans([item], [], existing_rows, hosts, alone=True)
    _refuse(item.problems)
    return Save(item, existing_rows)


def create_application(*, actor: str, now: datetime, **definition: Any) -> Application:
    """Create an application with revision 1; see `plan_application`."""
    # Nothing else can make it stale: a unique name is all that it takes.
    made = _write(partial(plan_application, **definition), actor, now, None).row
    assert isinstance(made, Application)
    return made


def revise_application(*, actor: str, now: datetime, **definition: Any) -> ApplicationRevision:
    """Add a revision; see `plan_application`.

    The running driver keeps the revision it was launched with; the next launch uses the newest. If
    the spec equals the newest revision, that revision is returned and none is added.
    """
    plan = partial(plan_application, **definition)
    made = _write(plan, actor, now, as_of_now()).newest
    assert isinstance(made, ApplicationRevision)
    return made


def save_pool(
    *, application: Application, spec: dict[str, Any], actor: str, now: datetime
) -> SchedulerPool:
    """Create or change a pool by name; this takes effect with the application's next driver."""
    pool = parsing.parse_pool(spec)
    with transaction.atomic():
        if application.archived_at is not None:
            raise NotAllowed(f"{application} has been deleted.", way_out="Create it again.")
        before = application.pools.filter(name=pool.name).first()
        row, _ = SchedulerPool.objects.update_or_create(
            application=application,
            name=pool.name,
            defaults={"weight": pool.weight, "min_share": pool.min_share, "mode": pool.mode},
        )
        after = pool_text(row)
        if before is None or pool_text(before) != after:
            about = Because(Detail.POOL, {"pool": row.name})
            record_definition(application, None, pool_text(before), after, actor, now, about)
            changed(f"application:{application.pk}")
    return row


def delete_pool(*, pool: SchedulerPool, actor: str, now: datetime) -> None:
    """Delete a pool; raises `Conflict` naming the queries that use it."""
    with transaction.atomic():
        one_at_a_time()
        users = [
            query.name
            for query in pool.application.queries.filter(archived_at=None)
            if pool.name in _pools_named_by(query)
        ]
        if users:
            raise Conflict(
                f"Pool {pool.name} is used by {', '.join(users)}.",
                way_out="Move them to another pool first.",
            )
        about = Because(Detail.POOL, {"pool": pool.name})
        record_definition(pool.application, None, pool_text(pool), "", actor, now, about)
        changed(f"application:{pool.application_id}")
        pool.delete()


def plan_query(
    *,
    spec: dict[str, Any],
    name: str = "",
    query: Query | None = None,
    application: str = "",
    application_spec: dict[str, Any] | None = None,
    checkpoint: str = "",
    team: Team | None = None,
    expected_revision: int | None = None,
    gap_accepted: bool = False,
    rights: AuthorRights = AuthorRights.SQL,
    require_checked: bool = False,
    earlier: SetItem | None = None,
) -> Save:
    """Plan a new query, or a change to `query`, without writing; see `plan_application`.

    Unless `application` is given, a new query gets its own application, created with
    `application_spec` or the defaults, for `team`. An empty `checkpoint` means
    `file://CHECKPOINTS_DIR/NAME`, with a number appended if an archived query left files there.
    Switching async progress tracking off while the offset log has a gap raises `Invalid`, unless
    `gap_accepted` is set: the operation that switches it off safely sets this to restore a
    definition. `require_checked` raises `Invalid` if the SQL could not be checked.
    """
    row = newest = None
    if query is not None:
        refuse_discovered(query)
        name, application, checkpoint = query.name, "", ""
    if application_spec is not None:
        application_spec = _at_commit(application_spec, rights, earlier, field="application_spec.")
    manifest = Manifest(Kind.QUERY, name, spec, {}, application=application, checkpoint=checkpoint)
    existing_rows = look_up([manifest])
    if query is not None:
        row = _living(query, existing_rows.queries)
        newest = _newest(existing_rows.query_revisions[row.pk], expected_revision)
        manifest = replace(manifest, spec=unmask(spec, before=newest.spec), labels=row.labels)
    manifest = replace(manifest, spec=manifests.normal_query(manifest.spec))
    item = SetItem("", Kind.QUERY, name, manifest, row, is_new=row is None)
    item.application_spec, item.team, item.newest = application_spec, team, newest
    item.answers = earlier.answers if earlier is not None else None
    item.gap_accepted = gap_accepted
    plan_queries(
        [item], existing_rows, plan_applications([], existing_rows, rights=rights), rights=rights
    )
    _refuse(item.problems)
    if require_checked:
        refuse_unchecked([item], existing_rows)
        _refuse(item.problems)
    return Save(item, existing_rows)


def create_query(*, actor: str, now: datetime, **definition: Any) -> Query:
    """Create a query with revision 1, its checkpoint and, if needed, its own application.

    See `plan_query`.
    """
    made = _write(partial(plan_query, **definition), actor, now, as_of_now()).row
    assert isinstance(made, Query)
    return made


def revise_query(*, actor: str, now: datetime, **definition: Any) -> QueryRevision:
    """Add a revision, used from the next start or restart; see `revise_application`."""
    made = _write(partial(plan_query, **definition), actor, now, as_of_now()).newest
    assert isinstance(made, QueryRevision)
    return made


def _write(plan: Callable[..., Save], actor: str, now: datetime, as_of: Moment | None) -> SetItem:
    """Plan a definition and write it; return it with its row or revision.

    `as_of` is from before the plan; see `ExistingRows`.
    """
    save = plan()
    save.existing_rows.as_of = as_of
    if not save.item.is_new and not save.item.spec_differs:
        return save.item
    try:
        with writing(save.existing_rows, [save.item]):
            DefinitionWriter([save.item], save.existing_rows, actor=actor, now=now).write()
    except StalePlan:  # by another save, which has ended; the next one waits for this
        with transaction.atomic():
            one_at_a_time()
            save = plan(earlier=save.item)
            if save.item.is_new or save.item.spec_differs:
                DefinitionWriter([save.item], save.existing_rows, actor=actor, now=now).write()
    return save.item


def _living(given: R, existing_rows: Mapping[str, R]) -> R:
    """Return a row's current state; raise `NotAllowed` if it has been deleted."""
    row = existing_rows.get(given.name)
    if row is None or row.pk != given.pk:
        raise NotAllowed(f"{given} has been deleted.", way_out="Create it again.")
    return row


def _at_commit(
    spec: dict[str, Any], rights: AuthorRights, earlier: SetItem | None, *, field: str = ""
) -> dict[str, Any]:
    """Return an application's definition with the commit of its branch or tag.

    It is resolved once. Users who may not write Python are rejected later, so no host is contacted
    for them. Problems are those of the definition in `field`.
    """
    if earlier is not None:
        return earlier.application_spec or spec
    if AuthorRights.PYTHON not in rights:
        return spec
    try:
        return resolved(spec)[0]
    except Invalid as error:
        below = [replace(one, field=f"{field}{one.field}") for one in error.problems]
        raise Invalid(below) from error


def _refuse(problems: Iterable[Problem]) -> None:
    """Raise `Invalid` with the fields of a definition instead of those of its manifest."""
    found = [replace(one, field=_MANIFEST_PART.sub("", one.field, count=1)) for one in problems]
    if found:
        raise Invalid(found)


def _newest(newest: V, expected: int | None) -> V:
    """Return the newest revision; raise `StaleRevision` if another one is expected."""
    if expected is not None and expected != newest.number:
        raise StaleRevision(
            f"You changed revision {expected}, but revision {newest.number} is the newest.",
            way_out="Load it and make your change again.",
        )
    return newest


def _pools_named_by(query: Query) -> set[str]:
    """Return the pools named by the query's newest revision and by its pinned one."""
    revisions = [query.revisions.order_by("-number").first(), query.target_revision]
    return {str(revision.spec.get("pool", "")) for revision in revisions if revision}
