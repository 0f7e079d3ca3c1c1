"""Definitions: validated, stored as immutable revisions, never half-done."""

from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from queries.domain import validation
from queries.domain.errors import Conflict, Invalid, Missing, NotAllowed, Problem, StaleRevision
from queries.domain.locations import NotALocation, checkpoint_problem
from queries.domain.masking import unmask
from queries.domain.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.history import Transition
from queries.models.installation import Installation
from queries.services import surroundings


def create_application(
    *, name: str, spec: dict[str, Any], actor: str, now: datetime, own: bool = False
) -> Application:
    """Create an application with revision 1. Raises `Invalid` with every problem found."""
    with transaction.atomic():
        _one_at_a_time()
        taken = Application.objects.filter(name=name).exists()
        problems = validation.name_problems(name, taken=taken, what="application")
        form, found = _application_form(spec)
        _refuse(problems + found)
        return _add_application(name=name, spec=form, actor=actor, now=now, own=own)


def revise_application(
    *,
    application: Application,
    spec: dict[str, Any],
    expected_revision: int | None,
    actor: str,
    now: datetime,
) -> ApplicationRevision:
    """Add a revision. Raises `StaleRevision` where `expected_revision` is not the newest.

    The living driver keeps what it was launched with; the next launch takes the newest.
    A spec equal to the newest adds nothing and returns that one.
    """
    with transaction.atomic():
        _one_at_a_time()
        _refuse_archived(Application.objects.get(pk=application.pk))
        newest = application.revisions.order_by("-number")[0]
        _refuse_stale(newest.number, expected_revision)
        form = _revised_application(application, unmask(spec, before=newest.spec))
        if validation.as_json(form) == newest.spec:
            return newest
        revision = _add_application_revision(application, newest.number + 1, form, actor, now)
        changed(f"application:{application.pk}")
        return revision


def check_application(*, application: Application, spec: dict[str, Any]) -> None:
    """Validate a new form of an application without writing; raises `Invalid`."""
    newest = application.revisions.order_by("-number")[0]
    _revised_application(application, unmask(spec, before=newest.spec))


def save_pool(
    *, application: Application, spec: dict[str, Any], actor: str, now: datetime
) -> SchedulerPool:
    """Create or change a pool by name. Takes effect with the application's next driver."""
    pool = validation.parse_pool(spec)
    with transaction.atomic():
        _refuse_archived(application)
        before = application.pools.filter(name=pool.name).first()
        row, _ = SchedulerPool.objects.update_or_create(
            application=application,
            name=pool.name,
            defaults={"weight": pool.weight, "min_share": pool.min_share, "mode": pool.mode},
        )
        after = _pool_text(row)
        if before is None or _pool_text(before) != after:
            _record(application, None, _pool_text(before), after, actor, now, f"pool {row.name}")
            changed(f"application:{application.pk}")
    return row


def delete_pool(*, pool: SchedulerPool, actor: str, now: datetime) -> None:
    """Delete a pool; raises `Conflict` naming the queries that use it."""
    with transaction.atomic():
        _one_at_a_time()
        users = [
            query.name
            for query in pool.application.queries.filter(archived_at=None)
            if pool.name in _pools_of(query)
        ]
        if users:
            raise Conflict(
                f"Pool {pool.name} is used by {', '.join(users)}.",
                way_out="Move them to another pool first.",
            )
        _record(pool.application, None, _pool_text(pool), "", actor, now, f"pool {pool.name}")
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
) -> Query:
    """Create a query with revision 1, its checkpoint row and, unless one is named, an
    application of its own (with `application_spec` or the defaults), in one transaction.

    An empty `checkpoint` is `file://CHECKPOINTS_DIR/NAME`, with a number after it where an
    archived query has left files there. Raises `Invalid` with every problem found (name
    taken, checkpoint held or nested, naming the holder, …).
    """
    with transaction.atomic():
        _one_at_a_time()
        draft = _Draft(name, spec, application, application_spec, checkpoint)
        _refuse(draft.problems)
        host = draft.host or _add_application(
            name=_free_application_name(name),
            spec=draft.application_form,
            actor=actor,
            now=now,
            own=True,
        )
        query = Query.objects.create(name=name, application=host, created_at=now, phase_since=now)
        Checkpoint.objects.create(query=query, location=draft.location, created_at=now)
        _add_query_revision(query, 1, draft.form, actor, now)
        changed("queries", f"application:{host.pk}")
        return query


def revise_query(
    *,
    query: Query,
    spec: dict[str, Any],
    expected_revision: int | None,
    actor: str,
    now: datetime,
) -> QueryRevision:
    """Add a revision; it runs from the next start or restart on. See `revise_application`."""
    with transaction.atomic():
        _one_at_a_time()
        _refuse_archived(Query.objects.get(pk=query.pk))
        newest = query.revisions.order_by("-number")[0]
        _refuse_stale(newest.number, expected_revision)
        draft = _Draft(query.name, unmask(spec, before=newest.spec), query=query)
        _refuse(draft.problems)
        if draft.form is None or validation.as_json(draft.form) == newest.spec:
            return newest
        revision = _add_query_revision(query, newest.number + 1, draft.form, actor, now)
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
) -> None:
    """Validate without writing; raises `Invalid`. `query` is the one being edited, if any."""
    if query is not None:
        spec = unmask(spec, before=query.revisions.order_by("-number")[0].spec)
    _refuse(_Draft(name, spec, application, application_spec, checkpoint, query=query).problems)


class _Draft:
    """A query as somebody wants it, beside all that is wrong with it.

    `form`, `application_form` and `location` can be relied on where `problems` is empty.
    """

    def __init__(
        self,
        name: str,
        spec: dict[str, Any],
        application: str = "",
        application_spec: dict[str, Any] | None = None,
        checkpoint: str = "",
        query: Query | None = None,
    ) -> None:
        self.problems: list[Problem] = []
        self.form: SqlQuery | PythonQuery | None = None
        self.host = query.application if query else self._named(application)
        self.application_form = self._application(application_spec)
        self.location = ""
        if query is None:
            taken = Query.objects.filter(name=name, archived_at=None).exists()
            self.problems += validation.name_problems(name, taken=taken)
            if not self.problems:
                self._place(name, checkpoint)
        self._query(spec)

    def _named(self, name: str) -> Application | None:
        if not name:
            return None
        host = Application.objects.filter(name=name, archived_at=None).first()
        if host is None:
            way_out = "Make the application first, or leave the field empty for one of its own."
            self.problems.append(Problem("application", name, "is no application.", way_out))
        elif host.own and host.queries.filter(archived_at=None).exists():
            holder = host.queries.filter(archived_at=None)[0].name
            self.problems.append(
                Problem(
                    "application",
                    name,
                    f"was made for query {holder} alone.",
                    "Make an application for queries that share a driver.",
                )
            )
        return host

    def _application(self, raw: dict[str, Any] | None) -> ApplicationSpec:
        if self.host is not None:
            if raw is not None:
                self.problems.append(
                    Problem(
                        "application_spec",
                        "",
                        "is for an application of the query's own.",
                        f"Change application {self.host.name} itself, or name none.",
                    )
                )
            newest = self.host.revisions.order_by("-number")[0]
            return ApplicationSpec.model_validate(newest.spec)
        form, problems = _application_form(raw or {})
        self.problems += [
            Problem(f"application_spec.{each.field}", each.value, each.message, each.way_out)
            for each in problems
        ]
        return form or ApplicationSpec()

    def _place(self, name: str, checkpoint: str) -> None:
        used = Checkpoint.objects.select_related("query")
        held = {row.location: row.query.name for row in used.filter(retired_at=None)}
        if not checkpoint:
            retired = set(used.exclude(retired_at=None).values_list("location", flat=True))
            self.location = surroundings.default_checkpoint(name, avoid=retired - set(held))
        else:
            try:
                self.location = surroundings.canonical_checkpoint(checkpoint)
            except NotALocation as error:
                way_out = "Write an absolute path, or a URI such as s3a://bucket/folder."
                self.problems.append(Problem("checkpoint", checkpoint[:200], str(error), way_out))
                return
        found = checkpoint_problem(self.location, held)
        if found:
            self.problems.append(found)

    def _query(self, raw: dict[str, Any]) -> None:
        try:
            self.form = validation.parse_query(raw)
        except Invalid as error:
            self.problems += error.problems
            return
        pools = self.host.pools.values_list("name", flat=True) if self.host else []
        self.problems += validation.query_problems(
            self.form,
            application=self.application_form,
            pools=list(pools),
            surroundings=surroundings.look(self.application_form),
        )
        if isinstance(self.form, PythonQuery):
            self.problems += surroundings.function_problems(self.form, self.application_form)


def _one_at_a_time() -> None:
    """Let one definition be written at a time, so that no two take overlapping checkpoints.

    SQLite's IMMEDIATE transactions wait for each other already; on PostgreSQL the lock on
    the installation's row makes them.
    """
    Installation.get()
    Installation.objects.select_for_update().get(pk=1)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise Invalid(problems)


def _refuse_stale(newest: int, expected: int | None) -> None:
    if expected is not None and expected != newest:
        raise StaleRevision(
            f"You changed revision {expected}, but revision {newest} is the newest.",
            way_out="Load it, and make your change again.",
        )


def _refuse_archived(row: Application | Query) -> None:
    if row.archived_at is not None:
        raise NotAllowed(f"{row} has been deleted.", way_out="Create it anew.")


def _application_form(raw: dict[str, Any]) -> tuple[ApplicationSpec | None, list[Problem]]:
    try:
        form = validation.parse_application(raw)
    except Invalid as error:
        return None, list(error.problems)
    seen = surroundings.look(form)
    problems = validation.application_problems(form, surroundings=seen)
    return form, problems + surroundings.listener_problems(form)


def _revised_application(application: Application, raw: dict[str, Any]) -> ApplicationSpec:
    form, problems = _application_form(raw)
    if form is not None:
        problems = problems + _orphaned_queries(application, form)
    _refuse(problems)
    return form or ApplicationSpec()


def _orphaned_queries(application: Application, form: ApplicationSpec) -> list[Problem]:
    """Return why living queries of an application could not go on under its new form."""
    problems = []
    pools = list(application.pools.values_list("name", flat=True))
    for query in application.queries.filter(archived_at=None):
        spec = validation.parse_query(query.revisions.order_by("-number")[0].spec)
        before = ApplicationSpec.model_validate(application.revisions.order_by("-number")[0].spec)
        known = {
            (each.field, each.message)
            for each in validation.query_problems(
                spec, application=before, pools=pools, surroundings=surroundings.look(before)
            )
        }
        problems += [
            Problem(
                "scheduler_mode" if each.field == "pool" else "connectors",
                each.value,
                f"query {query.name} would no longer work: its {each.field} {each.message}",
                f"Change query {query.name} first.",
            )
            for each in validation.query_problems(
                spec, application=form, pools=pools, surroundings=surroundings.look(form)
            )
            if (each.field, each.message) not in known
        ]
    return problems


def _free_application_name(name: str) -> str:
    """Return the query's name, with a number after it where an application has had it."""
    taken = set(Application.objects.filter(name__startswith=name).values_list("name", flat=True))
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _add_application(
    *, name: str, spec: ApplicationSpec | None, actor: str, now: datetime, own: bool
) -> Application:
    application = Application.objects.create(name=name, own=own, created_at=now)
    _add_application_revision(application, 1, spec or ApplicationSpec(), actor, now)
    return application


def _add_application_revision(
    application: Application, number: int, spec: ApplicationSpec, actor: str, now: datetime
) -> ApplicationRevision:
    revision = ApplicationRevision.objects.create(
        application=application,
        number=number,
        spec=validation.as_json(spec),
        author=actor,
        created_at=now,
    )
    Application.objects.filter(pk=application.pk).update(target_revision=revision)
    application.target_revision = revision
    before = f"revision {number - 1}" if number > 1 else ""
    _record(application, None, before, f"revision {number}", actor, now)
    return revision


def _add_query_revision(
    query: Query,
    number: int,
    spec: SqlQuery | PythonQuery | None,
    actor: str,
    now: datetime,
) -> QueryRevision:
    if spec is None:  # a draft without problems has a form
        raise Missing("The definition has no form.")
    revision = QueryRevision.objects.create(
        query=query,
        number=number,
        kind=spec.kind,
        spec=validation.as_json(spec),
        author=actor,
        created_at=now,
    )
    before = f"revision {number - 1}" if number > 1 else ""
    _record(query.application, query, before, f"revision {number}", actor, now)
    return revision


def _record(
    application: Application,
    query: Query | None,
    before: str,
    after: str,
    actor: str,
    now: datetime,
    detail: str = "",
) -> None:
    Transition.objects.create(
        at=now,
        application=application,
        query=query,
        subject="definition",
        before=before,
        after=after,
        reason="",
        detail=detail,
        actor=actor,
    )


def _pools_of(query: Query) -> set[str]:
    """Return the pools that the query's newest and its pinned revision name."""
    revisions = [query.revisions.order_by("-number").first(), query.target_revision]
    return {str(revision.spec.get("pool", "")) for revision in revisions if revision}


def _pool_text(pool: SchedulerPool | None) -> str:
    return f"weight {pool.weight}, min {pool.min_share}, {pool.mode}" if pool else ""
