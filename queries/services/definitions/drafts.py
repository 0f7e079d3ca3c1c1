"""Check definitions as users enter them, and collect all their problems.

Applies the pure rules to what only the database and this host know: taken names, held checkpoints,
pools, connectors and modules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from queries.domain.definitions import parsing
from queries.domain.definitions.locations import A_LOCATION, NotALocation, checkpoint_problem
from queries.domain.definitions.spec import (
    HOLDING_TRIGGERS,
    ApplicationSpec,
    PythonQuery,
    SqlQuery,
)
from queries.domain.definitions.sql_verdict import SqlVerdict, has_own_grammar, refused
from queries.domain.errors import Invalid, Problem
from queries.domain.secrets.bindings import application as holder_named
from queries.domain.validation import application_rules, query_rules
from queries.domain.validation.joining import joining_problems
from queries.domain.validation.skipped import Check, Skip
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.selectors.code import root_of
from queries.selectors.definitions.connectors import conf_of_connectors
from queries.selectors.definitions.locations import held_checkpoints, retired_locations
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.triggers.cores import cores_beside, known_partitions, newest_application_spec
from queries.services import local_roots
from queries.services.definitions import surroundings
from queries.services.definitions.sql_check import sql_skips
from queries.services.secrets.refusals import unbound_secrets


@dataclass(frozen=True, slots=True)
class Checked:
    """The check results of a valid definition, stored with its revision."""

    skipped: tuple[Skip, ...] = ()
    state: dict[str, Any] | None = None  # what its state depends on; None if unknown


class QueryDraft:
    """A query as a user enters it, with all its problems.

    `form`, `application_form` and `location` are valid if `problems` is empty.
    """

    def __init__(
        self,
        name: str,
        spec: dict[str, Any],
        application: str = "",
        application_spec: dict[str, Any] | None = None,
        checkpoint: str = "",
        query: Query | None = None,
        partitions: Mapping[str, int] | None = None,  # of its sources, as seen by `partitions.look`
        parsed: SqlVerdict | None = None,  # Spark's verdict on its SQL, if it was asked
    ) -> None:
        self._partitions = partitions or {}
        self._parsed = parsed
        self._id = query.pk if query else None
        self.problems: list[Problem] = []
        self.form: SqlQuery | PythonQuery | None = None
        self.host = query.application if query else self._named(application)
        #: The application's name, also for the query's own one that does not exist yet.
        self.host_name = self.host.name if self.host else free_application_name(name)
        self.application_form = self._application(application_spec)
        self.location = ""
        self.skipped: list[Skip] = []
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
            self.problems.append(
                Problem("application", name, "is not an existing application.", way_out)
            )
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
                        f"Change application {self.host.name} itself, or leave the "
                        "application empty.",
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
            placed = self.host.host if self.host is not None else ""
            self.location = local_roots.default_checkpoint(name, shared, avoid=left, host=placed)
        else:
            try:
                self.location = local_roots.canonical_checkpoint(checkpoint)
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
        if not self.problems:
            self.skipped = skips(
                self.form,
                application=self.application_form,
                partitions=self._partitions,
                parsed=self._parsed,
            )
            self.skipped += [
                Skip(Check.PLACE, MISSING_ROOT.format(root=root))
                for root in local_roots.missing_of(self.form, self.host_name)
            ]

    @property
    def checked(self) -> Checked:
        """Return the check results of a valid draft."""
        return Checked(tuple(self.skipped), self._parsed.state if self._parsed else None)


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
    """Return a query's problems in the application with this name.

    `parsed` is Spark's verdict on its SQL, if it was asked.
    """
    problems = faults(form, pools, partitions, beside, application)
    problems += local_roots.data_problems(form, host_name)
    problems += unbound_secrets(parsing.as_json(form), holder_named(host_name))
    if isinstance(form, PythonQuery):
        problems += surroundings.function_problems(form, application)
    elif parsed is not None and not parsed.ok and not has_own_grammar(conf_of(application)):
        # Spark's rejection of a text replaces any guesses about it.
        problems = [one for one in problems if one.field != "sql"]
        problems.append(refused(form.sql, parsed))
    return problems


#: Inside the isolation (walls), a driver sees only folders that existed when it started.
MISSING_ROOT = "the data root {root} does not exist. Create it, then restart the application."


def skips(
    form: SqlQuery | PythonQuery,
    *,
    application: ApplicationSpec,
    partitions: Mapping[str, int],
    parsed: SqlVerdict | None,
) -> list[Skip]:
    """Return the skipped checks of a definition, each with the reason."""
    found = []
    if isinstance(form, SqlQuery):
        found += sql_skips(form, parsed, conf_of(application))
    elif application.code is not None and root_of(application.code) is None:
        why = f"{form.function} is looked up when the code is fetched, before the first start."
        found.append(Skip(Check.CODE, why))
    raw = parsing.as_json(form)
    if form.trigger.kind in HOLDING_TRIGGERS:
        read = [one for one in kafka_sources(raw) if one.wanted.topics or one.wanted.pattern]
        unknown = [one.name for one in read if one.name not in partitions]
        if unknown:
            why = f"the brokers of {', '.join(unknown)} were not contacted or did not respond."
            found.append(Skip(Check.PARTITIONS, why))
    return found


def conf_around(
    query: Query | None, application: str, raw: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the known configuration of the application to which a definition belongs.

    `raw` is the definition of the query's own application, with any structure.
    """
    row = query.application if query else None
    if row is None and application:
        row = Application.objects.filter(name=application, archived_at=None).first()
    if row is not None:
        return conf_of(newest_application_spec(row))
    try:
        return conf_of(parsing.parse_application(dict(raw or {})))
    except Invalid:
        return {}


def conf_of(application: ApplicationSpec) -> dict[str, str]:
    """Return an application's configuration, including its connectors' additions."""
    return {**conf_of_connectors(application.connectors), **application.conf}


def kind_of(application: Application) -> str:
    """Return the kind of an application's definition, which never changes."""
    return "script" if Script.objects.filter(application=application).exists() else "queries"


def holder_of(application: Application) -> str:
    """Return the living query that an application was created for; "" if none."""
    if not application.own:
        return ""
    living = application.queries.filter(archived_at=None).order_by("pk")
    return living.values_list("name", flat=True).first() or ""


def free_application_name(name: str) -> str:
    """Return the query's name, with a number appended if a living application has it."""
    living = Application.objects.filter(name__startswith=name, archived_at=None)
    taken = set(living.values_list("name", flat=True))
    return next(free for free in local_roots.numbered(name) if free not in taken)


def application_form(
    raw: dict[str, Any], name: str
) -> tuple[ApplicationSpec | None, list[Problem]]:
    """Return an application's definition (None if its structure is invalid) and its problems."""
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
    """Return a query's problems by the rules of definitions alone."""
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
                f"would break query {query.name}: its {each.field} {each.message}",
                f"Change query {query.name} first.",
            )
            for each in look(form)
            if (each.field, each.message) not in known
        ]
    return problems


#: A query's field that an application breaks -> the application's field that causes it.
BLAMED = {"pool": "scheduler_mode", "trigger.kind": "master"}
