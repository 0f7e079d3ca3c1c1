"""Check definitions as a user enters them, and collect all their problems.

The pure rules are applied to what only the database and this host know: names that are taken,
checkpoints that are held, pools, connectors and modules.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from queries.domain.definitions import parsing
from queries.domain.definitions.locations import A_LOCATION, NotALocation, checkpoint_problem
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.definitions.sql_verdict import SqlVerdict, has_own_grammar, refused
from queries.domain.errors import Invalid, Problem
from queries.domain.secrets.bindings import application as holder_named
from queries.domain.validation import application_rules, query_rules
from queries.domain.validation.joining import joining_problems
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.selectors.definitions.connectors import conf_of_connectors
from queries.selectors.definitions.locations import held_checkpoints, retired_locations
from queries.selectors.triggers.cores import cores_beside, known_partitions, newest_application_spec
from queries.services import local_roots
from queries.services.definitions import surroundings
from queries.services.secrets.refusals import unbound_secrets


class QueryDraft:
    """A query as a user enters it, with all its problems.

    `form`, `application_form` and `location` are valid where `problems` is empty.
    """

    def __init__(
        self,
        name: str,
        spec: dict[str, Any],
        application: str = "",
        application_spec: dict[str, Any] | None = None,
        checkpoint: str = "",
        query: Query | None = None,
        partitions: Mapping[str, int] | None = None,  # of its sources, as `partitions.look` saw
        parsed: SqlVerdict | None = None,  # what Spark says of its SQL, as far as it was asked
    ) -> None:
        self._partitions = partitions or {}
        self._parsed = parsed
        self._id = query.pk if query else None
        self.problems: list[Problem] = []
        self.form: SqlQuery | PythonQuery | None = None
        self.host = query.application if query else self._named(application)
        #: Of the application, the query's own one included that is not made yet.
        self.host_name = self.host.name if self.host else free_application_name(name)
        self.application_form = self._application(application_spec)
        self.location = ""
        if query is None:
            taken = Query.objects.filter(name=name, archived_at=None).exists()
            misnamed = query_rules.name_problems(name, taken=taken)
            self.problems += misnamed
            if checkpoint or not misnamed:
                self._place(name, checkpoint)
        self._query(spec)

    def _named(self, name: str) -> Application | None:
        if not name:
            return None
        host = Application.objects.filter(name=name, archived_at=None).first()
        if host is None:
            way_out = (
                "Create the application first, or leave the field empty to give the query its own."
            )
            self.problems.append(Problem("application", name, "is not an application.", way_out))
        else:
            kind, holder = kind_of(host), holder_of(host)
            self.problems += joining_problems(name, kind=kind, holder=holder)
        return host

    def _application(self, raw: dict[str, Any] | None) -> ApplicationSpec:
        if self.host is not None:
            if raw is not None:
                self.problems.append(
                    Problem(
                        "application_spec",
                        "",
                        "applies only to the query's own application.",
                        f"Change application {self.host.name} itself, or do not name one.",
                    )
                )
            return newest_application_spec(self.host)
        form, problems = application_form(raw or {}, self.host_name)
        self.problems += [
            Problem(f"application_spec.{each.field}", each.value, each.message, each.way_out)
            for each in problems
        ]
        return form or ApplicationSpec()

    def _place(self, name: str, checkpoint: str) -> None:
        held = held_checkpoints()
        if not checkpoint:
            shared = self.host.name if self.host is not None and not self.host.own else ""
            left = retired_locations() - set(held)
            self.location = surroundings.default_checkpoint(name, shared, avoid=left)
        else:
            try:
                self.location = surroundings.canonical_checkpoint(checkpoint)
            except NotALocation as error:
                wrong = Problem("checkpoint", checkpoint[:200], str(error), A_LOCATION)
                self.problems.append(wrong)
                return
            self.problems += local_roots.checkpoint_problems(self.location, self.host_name)
        found = checkpoint_problem(self.location, held)
        if found:
            self.problems.append(found)

    def _query(self, raw: dict[str, Any]) -> None:
        try:
            self.form = parsing.parse_query(raw)
        except Invalid as error:
            self.problems += error.problems
            return
        pools = list(self.host.pools.values_list("name", flat=True)) if self.host else []
        beside = cores_beside(self.host, but=self._id) if self.host else {}
        self.problems += form_problems(
            self.form,
            host_name=self.host_name,
            application=self.application_form,
            pools=pools,
            partitions=self._partitions,
            beside=beside,
            parsed=self._parsed,
        )


def form_problems(
    form: SqlQuery | PythonQuery,
    *,
    host_name: str,
    application: ApplicationSpec,
    pools: list[str],
    partitions: Mapping[str, int],
    beside: Mapping[str, int],
    parsed: SqlVerdict | None,
) -> list[Problem]:
    """Return what is wrong with a query in the application of this name.

    `parsed` is what Spark says of its SQL, as far as it was asked.
    """
    problems = faults(form, pools, partitions, beside, application)
    problems += local_roots.data_problems(form, host_name)
    problems += unbound_secrets(parsing.as_json(form), holder_named(host_name))
    if isinstance(form, PythonQuery):
        problems += surroundings.function_problems(form, application)
    elif parsed is not None and not parsed.ok and not has_own_grammar(_conf(application)):
        # Spark's refusal of a text stands in place of what was guessed about it.
        problems = [one for one in problems if one.field != "sql"]
        problems.append(refused(form.sql, parsed))
    return problems


def _conf(application: ApplicationSpec) -> dict[str, str]:
    return {**conf_of_connectors(application.connectors), **application.conf}


def kind_of(application: Application) -> str:
    """Return the kind of an application's definition, which never changes."""
    return "script" if Script.objects.filter(application=application).exists() else "queries"


def holder_of(application: Application) -> str:
    """Return the living query that an application was created for, "" for none."""
    if not application.own:
        return ""
    living = application.queries.filter(archived_at=None).order_by("pk")
    return living.values_list("name", flat=True).first() or ""


def free_application_name(name: str) -> str:
    """Return the query's name, with a number after it where a living application has it."""
    living = Application.objects.filter(name__startswith=name, archived_at=None)
    taken = set(living.values_list("name", flat=True))
    return next(free for free in surroundings.numbered(name) if free not in taken)


def application_form(
    raw: dict[str, Any], name: str
) -> tuple[ApplicationSpec | None, list[Problem]]:
    """Return an application's definition (None where its shape is wrong) and its problems."""
    try:
        form = parsing.parse_application(raw)
    except Invalid as error:
        return None, list(error.problems)
    seen = surroundings.look(form)
    problems = application_rules.application_problems(form, surroundings=seen)
    problems += local_roots.conf_problems(form, name)
    problems += unbound_secrets(parsing.as_json(form), holder_named(name))
    problems += surroundings.listener_problems(form)
    return form, problems + surroundings.script_problems(form)


def faults(
    spec: SqlQuery | PythonQuery,
    pools: list[str],
    counts: Mapping[str, int],
    beside: Mapping[str, int],
    application: ApplicationSpec,
) -> list[Problem]:
    """Return what is wrong with a query by the rules of definitions alone."""
    seen = replace(surroundings.look(application), partitions=counts, beside=beside)
    return query_rules.query_problems(spec, application=application, pools=pools, surroundings=seen)


def orphaned_queries(application: Application, form: ApplicationSpec) -> list[Problem]:
    """Return why living queries of an application could not run with its new form."""
    problems = []
    pools = list(application.pools.values_list("name", flat=True))
    before = newest_application_spec(application)
    for query in application.queries.filter(archived_at=None):
        raw = query.revisions.order_by("-number")[0].spec
        counts = known_partitions(query.pk, raw)
        beside = cores_beside(application, but=query.pk)
        look = partial(faults, parsing.parse_query(raw), pools, counts, beside)
        known = {(each.field, each.message) for each in look(before)}
        problems += [
            Problem(
                BLAMED.get(each.field, "connectors"),
                each.value,
                f"query {query.name} would no longer work: its {each.field} {each.message}",
                f"Change query {query.name} first.",
            )
            for each in look(form)
            if (each.field, each.message) not in known
        ]
    return problems


#: A query's field that an application breaks -> the application's own field that causes it.
BLAMED = {"pool": "scheduler_mode", "trigger.kind": "master"}
