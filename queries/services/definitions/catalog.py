"""Validate definitions and store them as immutable revisions, completely or not at all."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from headgate_ground.masking import unmask
from queries.domain.definitions import parsing
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem, StaleRevision
from queries.domain.reasons import Because, Detail
from queries.domain.validation import query_rules
from queries.domain.validation.joining import kind_problem
from queries.domain.validation.skipped import Skip, unchecked_sql
from queries.models.access.teams import Team
from queries.models.applications import (
    Application,
    ApplicationRevision,
    SchedulerPool,
)
from queries.models.definitions import Query, QueryRevision
from queries.models.installation import Installation
from queries.services.code.git_refs import resolved
from queries.services.definitions.code_rights import insist_application, insist_query
from queries.services.definitions.definition_rows import (
    DefinitionRows,
    checked_columns,
    pool_text,
    record_definition,
)
from queries.services.definitions.drafts import (
    Checked,
    QueryDraft,
    application_form,
    conf_around,
    kind_of,
    orphaned_queries,
    stranded_queries,
)
from queries.services.definitions.sql_check import ask_spark
from queries.services.scripts.discovered import refuse_discovered


def create_application(
    *,
    name: str,
    spec: dict[str, Any],
    actor: str,
    now: datetime,
    own: bool = False,
    team: Team | None = None,
    python: bool = False,
) -> Application:
    """Create an application with revision 1; without a team, it belongs to everyone.

    `python` says whether the actor may write Python, here and below; without it, a definition that
    contains code raises `Forbidden`. Raises `Invalid` with every problem found.
    """
    spec = _at_commit(spec, python)
    with transaction.atomic():
        one_at_a_time()
        form = _new_application(name, spec, python)
        rows = DefinitionRows(actor=actor, now=now)
        made = rows.application(name, form, own=own, team=team)
        rows.insert()
        changed(f"application:{made.pk}")
        return made


def revise_application(
    *,
    application: Application,
    spec: dict[str, Any],
    expected_revision: int | None,
    actor: str,
    now: datetime,
    python: bool = False,
) -> ApplicationRevision:
    """Add a revision; raise `StaleRevision` if `expected_revision` is not the newest.

    The running driver keeps the revision it was launched with; the next launch uses the newest. If
    the spec equals the newest revision, that revision is returned and none is added.
    """
    spec = _at_commit(spec, python)
    with transaction.atomic():
        one_at_a_time()
        _refuse_archived(Application.objects.get(pk=application.pk))
        newest = application.revisions.order_by("-number")[0]
        _refuse_stale(newest.number, expected_revision)
        form = _revised_application(application, unmask(spec, before=newest.spec), python)
        after = parsing.as_json(form)
        if after == newest.spec:
            return newest
        rows, number = DefinitionRows(actor=actor, now=now), newest.number + 1
        revision = rows.application_revision(application, number, after)
        rows.moved(application, None, f"revision {newest.number}", f"revision {number}")
        rows.insert()
        changed(f"application:{application.pk}")
        return revision


def check_new_application(*, name: str, spec: dict[str, Any], python: bool = False) -> None:
    """Validate a new application without writing; raises `Invalid`."""
    _new_application(name, _at_commit(spec, python), python)


def check_application(
    *, application: Application, spec: dict[str, Any], python: bool = False
) -> None:
    """Validate a change to an application without writing; raises `Invalid`."""
    newest = application.revisions.order_by("-number")[0]
    spec = _at_commit(spec, python)
    _revised_application(application, unmask(spec, before=newest.spec), python)


def save_pool(
    *, application: Application, spec: dict[str, Any], actor: str, now: datetime
) -> SchedulerPool:
    """Create or change a pool by name; this takes effect with the application's next driver."""
    pool = parsing.parse_pool(spec)
    with transaction.atomic():
        _refuse_archived(application)
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


def create_query(
    *,
    name: str,
    spec: dict[str, Any],
    actor: str,
    now: datetime,
    application: str = "",
    application_spec: dict[str, Any] | None = None,
    checkpoint: str = "",
    team: Team | None = None,
    python: bool = False,
    require_checked: bool = False,
) -> Query:
    """Create a query with revision 1, its checkpoint row and, if needed, its own application.

    All rows are written in one transaction. Unless `application` is given, the query gets its own
    application, created with `application_spec` or the defaults, for `team`. An empty `checkpoint`
    means `file://CHECKPOINTS_DIR/NAME`, with a number appended if an archived query left files
    there. Raises `Invalid` with every problem found (name taken, checkpoint held or nested, naming
    the holder, …), and with `require_checked` if its SQL could not be checked.
    """
    application_spec = _own_at_commit(application_spec, python)
    parsed = ask_spark(spec, *conf_around(None, application, application_spec))
    drafted = partial(
        QueryDraft, name, spec, application, application_spec, checkpoint, parsed=parsed
    )
    seen = drafted().seen  # by the brokers, asked before the transaction
    with transaction.atomic():
        one_at_a_time()
        draft = drafted(seen=seen)
        _insist(python, draft)
        _refuse(draft.problems)
        _refuse_unchecked(require_checked, draft.checked.skipped)
        assert draft.form is not None, "a draft without problems has a form"
        rows, own = DefinitionRows(actor=actor, now=now), draft.application_form
        host = draft.host or rows.application(draft.host_name, own, own=True, team=team)
        columns = checked_columns(draft.checked)
        place: dict[str, Any] = {"location": draft.location, "by_default": not checkpoint}
        query = rows.query(name, host, draft.form, columns, **place)
        rows.insert()
        changed(f"query:{query.pk}", f"application:{host.pk}")
        return query


def revise_query(
    *,
    query: Query,
    spec: dict[str, Any],
    expected_revision: int | None,
    actor: str,
    now: datetime,
    gap_accepted: bool = False,
    python: bool = False,
    require_checked: bool = False,
) -> QueryRevision:
    """Add a revision, used from the next start or restart; see `revise_application`.

    Switching async progress tracking off while the offset log has a gap raises `Invalid`, unless
    `gap_accepted` is set: the operation that switches it off safely sets this to restore a
    definition. `require_checked` raises `Invalid` if the SQL could not be checked.
    """
    refuse_discovered(query)
    before = query.revisions.order_by("-number")[0]
    known = unmask(spec, before=before.spec)
    parsed = None if known == before.spec else ask_spark(known, *conf_around(query, "", None))
    drafted = partial(QueryDraft, query.name, query=query, parsed=parsed)
    seen = drafted(known).seen  # by the brokers, asked before the transaction
    with transaction.atomic():
        one_at_a_time()
        _refuse_archived(Query.objects.get(pk=query.pk))
        newest = query.revisions.order_by("-number")[0]
        _refuse_stale(newest.number, expected_revision)
        spec = unmask(spec, before=newest.spec)
        draft = drafted(spec, newest=None if gap_accepted else newest, seen=seen)
        insist_query(python, draft.form, query)
        _refuse(draft.problems)
        if draft.form is None or (after := parsing.as_json(draft.form)) == newest.spec:
            _refuse_unchecked(require_checked, newest.skipped)
            return newest
        _refuse_unchecked(require_checked, draft.checked.skipped)
        rows, number = DefinitionRows(actor=actor, now=now), newest.number + 1
        checked = checked_columns(draft.checked)
        revision = rows.query_revision(query, number, draft.form.kind, after, checked)
        rows.moved(query.application, query, f"revision {newest.number}", f"revision {number}")
        rows.insert()
        changed(f"query:{query.pk}")
        return revision


def check_query(
    *,
    name: str,
    spec: dict[str, Any],
    application: str = "",
    application_spec: dict[str, Any] | None = None,
    checkpoint: str = "",
    query: Query | None = None,
    python: bool = False,
    require_checked: bool = False,
) -> Checked:
    """Validate a query without writing; raises `Invalid`. `query` is the row being edited, if any.

    Returns the results of the checks, and the skipped checks.
    """
    if query is not None:
        refuse_discovered(query)
    newest = query.revisions.order_by("-number")[0] if query else None
    spec = unmask(spec, before=newest.spec) if newest else spec
    application_spec = _own_at_commit(application_spec, python)
    draft = QueryDraft(
        name,
        spec,
        application,
        application_spec,
        checkpoint,
        query=query,
        newest=newest,
        parsed=ask_spark(spec, *conf_around(query, application, application_spec)),
    )
    _insist(python, draft, query)
    _refuse(draft.problems)
    _refuse_unchecked(require_checked, draft.checked.skipped)
    return draft.checked


def refuse_unchecked(query: Query) -> None:
    """Raise `Invalid` if the SQL of a query's newest revision has not been checked."""
    _refuse_unchecked(True, query.revisions.order_by("-number")[0].skipped)


def one_at_a_time() -> None:
    """Serialize definition writes, so that no two writes take overlapping checkpoints."""
    Installation.lock()


def _insist(python: bool, draft: QueryDraft, query: Query | None = None) -> None:
    """Raise `Forbidden` if a draft brings in code and its author may not write Python."""
    insist_query(python, draft.form, query)
    if draft.host is None:
        insist_application(python, draft.application_form, None)


def _at_commit(spec: dict[str, Any], python: bool) -> dict[str, Any]:
    """Return an application's definition with the commit of its branch or tag.

    Users who may not write Python are rejected later, so no host is contacted for them.
    """
    return resolved(spec)[0] if python else spec


def _own_at_commit(spec: dict[str, Any] | None, python: bool) -> dict[str, Any] | None:
    """Do the same for a query's own application; return None if it has the defaults."""
    try:
        return spec and _at_commit(spec, python)
    except Invalid as error:
        below = (replace(one, field=f"application_spec.{one.field}") for one in error.problems)
        raise Invalid(list(below)) from error


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Invalid(problems)


def _refuse_unchecked(required: bool, skips: Iterable[Skip]) -> None:
    if required:
        _refuse(unchecked_sql(skips))


def _refuse_stale(newest: int, expected: int | None) -> None:
    if expected is not None and expected != newest:
        raise StaleRevision(
            f"You changed revision {expected}, but revision {newest} is the newest.",
            way_out="Load it and make your change again.",
        )


def _refuse_archived(row: Application | Query) -> None:
    if row.archived_at is not None:
        raise NotAllowed(f"{row} has been deleted.", way_out="Create it again.")


def _new_application(name: str, spec: dict[str, Any], python: bool) -> ApplicationSpec:
    taken = Application.objects.filter(name=name, archived_at=None).exists()
    problems = query_rules.name_problems(name, taken=taken, what="application")
    form, found = application_form(spec, name)
    insist_application(python, form, None)
    _refuse(problems + found)
    return form or ApplicationSpec()


def _revised_application(
    application: Application, raw: dict[str, Any], python: bool
) -> ApplicationSpec:
    form, problems = application_form(raw, application.name)
    insist_application(python, form, application)
    other = kind_problem(kind_of(application), form.kind) if form else None
    if other:
        problems = [*problems, other]
    elif form is not None and form.kind == "queries":
        problems = problems + orphaned_queries(application, form)
    elif form is not None:
        problems = problems + stranded_queries(application, form)
    _refuse(problems)
    return form or ApplicationSpec()


def _pools_named_by(query: Query) -> set[str]:
    """Return the pools named by the query's newest revision and by its pinned one."""
    revisions = [query.revisions.order_by("-number").first(), query.target_revision]
    return {str(revision.spec.get("pool", "")) for revision in revisions if revision}
