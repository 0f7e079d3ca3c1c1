"""Check definitions as users enter them, and collect all their problems.

Applies the pure rules to facts that only the database and this host know: taken names, checkpoints
in use, pools, connectors and modules.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.conf import settings

from queries.domain.definitions import parsing
from queries.domain.definitions.locations import HeldLocations, NotALocation
from queries.domain.definitions.spec import HOLDING_TRIGGERS, ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.definitions.sql_verdict import SqlVerdict, has_own_grammar, refused
from queries.domain.errors import Invalid, Problem
from queries.domain.secrets import application as holder_named
from queries.domain.sparks import SINK_NAMES, SOURCE_NAMES, WAY_OUT, Spark, cannot_go_back, is_older
from queries.domain.validation import application_rules, pod_rules, query_rules
from queries.domain.validation.formats import (
    connector_of,
    store_problems,
    yarn_problems,
)
from queries.domain.validation.skipped import Check, Skip
from queries.models.access.accounts import Team
from queries.models.applications import Application
from queries.models.definitions import Query, QueryRevision
from queries.selectors.catalogs import access_problems
from queries.selectors.code import root_of
from queries.selectors.definitions.definitions import (
    conf_of_connectors,
    held_checkpoints,
    recipes,
    retired_locations,
)
from queries.selectors.definitions.sparks import written_of
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.triggers.cores import parsed_or_none, partition_counts
from queries.services import local_roots
from queries.services.definitions import surroundings
from queries.services.definitions.sql_check import sql_skips
from queries.services.kafka import topics
from queries.services.secrets import unbound_secrets
from queries.services.supervision.start_checks import gap_problems


@dataclass(frozen=True, slots=True)
class Checked:
    """The check results of a valid definition, stored with its revision."""

    skipped: tuple[Skip, ...] = ()
    state: dict[str, Any] | None = None  # what its state depends on; None if unknown
    state_by: str = ""  # the exact version of Spark that found `state`
    reads: dict[str, Any] | None = None  # the relations in its SQL; None if it was not parsed


@dataclass(frozen=True, slots=True)
class Around:
    """The context in which a query is validated: its future application, and its existing rows."""

    host_name: str  # the application's name
    application: ApplicationSpec
    pools: Collection[str]
    beside: Mapping[str, int]  # cores that other queries hold permanently, by query name
    query: Query | None = None  # None: it does not exist yet
    newest: QueryRevision | None = None  # None: do not compare with it
    beginning: bool = False  # it would start at its configured offsets


@dataclass(frozen=True, slots=True)
class Judged:
    """A query's problems; if it has none, the results of its checks."""

    problems: list[Problem]
    checked: Checked = Checked()
    seen: topics.Looked = field(default_factory=topics.Looked)


def judge(
    form: SqlQuery | PythonQuery,
    around: Around,
    *,
    sql_verdict: SqlVerdict | None,
    ask: bool,
    seen: topics.Looked | None = None,
) -> Judged:
    """Validate a query's definition, whether it is saved individually or as part of a set.

    `sql_verdict` is the verdict of Spark's parser on its SQL, if it was checked. With `ask`, the
    brokers are queried for partitions if the definition depends on them and is otherwise valid;
    `seen` contains the result of an earlier query.
    """
    raw, query = parsing.as_json(form), around.query
    if seen is None:
        counts = partition_counts(query.pk, raw) if query and _holds(form) else {}
        seen = topics.Looked(counts)
        ask = ask and topics.needed(raw, beginning=around.beginning)
        if ask and not _problems(form, around, counts, sql_verdict):
            seen = topics.look(raw, around.host_name, query, beginning=around.beginning)
    problems = _problems(form, around, seen.counts, sql_verdict) + seen.problems
    if query is not None and around.newest is not None:
        problems += gap_problems(query, around.newest, form)
    if problems:
        return Judged(problems, seen=seen)
    skipped_checks = skips(
        form, application=around.application, partitions=seen.counts, sql_verdict=sql_verdict
    )
    skipped_checks += [
        Skip(Check.PLACE, MISSING_ROOT.format(root=root))
        for root in local_roots.missing_of(form, around.host_name)
    ]
    found = (
        (sql_verdict.state, sql_verdict.spark, sql_verdict.reads)
        if sql_verdict
        else (None, "", None)
    )
    return Judged([], Checked(tuple(skipped_checks), *found), seen)


def _holds(form: SqlQuery | PythonQuery) -> bool:
    return form.trigger.kind in HOLDING_TRIGGERS


def _problems(
    form: SqlQuery | PythonQuery,
    around: Around,
    counts: Mapping[str, int],
    sql_verdict: SqlVerdict | None,
) -> list[Problem]:
    problems = _faults(form, around, counts)
    problems += local_roots.data_problems(form, around.host_name)
    problems += unbound_secrets(
        parsing.as_json(form), holder_named(around.host_name), parsing.as_json(around.application)
    )
    if isinstance(form, PythonQuery):
        problems += surroundings.function_problems(form, around.application)
    elif (
        sql_verdict is not None
        and not sql_verdict.ok
        and not has_own_grammar(conf_of(around.application))
    ):
        # Spark's rejection of a text replaces any guesses about it.
        problems = [one for one in problems if one.field != "sql"]
        problems.append(refused(form.sql, sql_verdict))
    return problems


def _faults(
    form: SqlQuery | PythonQuery, around: Around, counts: Mapping[str, int]
) -> list[Problem]:
    """Return a query's problems by the rules for definitions alone."""
    seen = surroundings.look(around.application)
    return query_rules.query_problems(
        form,
        application=around.application,
        pools=sorted(around.pools),
        surroundings=replace(seen, partitions=counts, beside=around.beside),
    )


class Places:
    """The checkpoints of new queries; those already in use are looked up only once."""

    @cached_property
    def _held(self) -> HeldLocations:
        return HeldLocations(held_checkpoints())

    @cached_property
    def _left(self) -> set[str]:
        return {one for one in retired_locations() if one not in self._held}

    def of(
        self,
        name: str,
        checkpoint: str,
        *,
        host_name: str,
        host: Application | None,
        own: bool,
        form: ApplicationSpec | None,
    ) -> tuple[str, list[Problem]]:
        """Return a new query's location and its problems; if it has none, reserve it.

        An empty `checkpoint` means the default one. `host` is the application's row, if it exists;
        `own` says that the application belongs to this query only. `form` is its definition, None
        if there is no such application.
        """
        problems = []
        if checkpoint:
            master = form.master if form else ""
            if problems := yarn_problems([("checkpoint", checkpoint)], master):
                return "", problems
            try:
                location = local_roots.canonical_checkpoint(checkpoint)
            except NotALocation as error:
                return "", [no_location(checkpoint, error)]
            problems = local_roots.checkpoint_problems(location, host_name)
        else:
            shared, on = "" if own else host_name, host.host if host else ""
            location = local_roots.default_checkpoint(
                name,
                shared,
                avoid=self._left,
                host=on,
                root=settings.POD_CHECKPOINTS if form is not None and form.runs_in_pod else "",
            )
        if problem := self._held.problem(location):
            problems.append(problem)
        else:
            self._held.take(location, name)
        return location, problems


def checkpoint_store(of: Query | str, application: ApplicationSpec) -> list[Problem]:
    """Return a problem if an application cannot use a checkpoint's store.

    It has no connector for it, or the store is this host's disk and its driver is a pod. `of` is
    the query that has the checkpoint, or the location for a new one.
    """
    if isinstance(of, Query):
        held = of.checkpoints.filter(retired_at=None).values_list("location", flat=True)
        of = str(held.first() or "")
    if not connector_of(of):
        return pod_rules.checkpoint_problems(of, application)
    return store_problems([("checkpoint", of)], application.connectors, recipes(application.spark))


def no_location(checkpoint: str, error: NotALocation) -> Problem:
    """Return the problem for a checkpoint that is not a valid location."""
    return Problem("checkpoint", checkpoint[:200], str(error), error.way_out)


#: An isolated driver sees only folders that existed when it started.
MISSING_ROOT = "the allowed path {root} does not exist. Create it, then restart the application."


def skips(
    form: SqlQuery | PythonQuery,
    *,
    application: ApplicationSpec,
    partitions: Mapping[str, int],
    sql_verdict: SqlVerdict | None,
) -> list[Skip]:
    """Return the skipped checks of a definition, each with the reason."""
    found = []
    if isinstance(form, SqlQuery):
        found += sql_skips(form, sql_verdict, conf_of(application), application.spark)
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


def conf_of(application: ApplicationSpec) -> dict[str, str]:
    """Return an application's configuration, including its connectors' additions."""
    return {**conf_of_connectors(application.connectors, application.spark), **application.conf}


def holder_of(application: Application) -> str:
    """Return the name of the existing query that an application was created for; "" if none."""
    if not application.own:
        return ""
    living = application.queries.filter(archived_at=None).order_by("pk")
    return living.values_list("name", flat=True).first() or ""


def application_form(
    raw: dict[str, Any], name: str, team: Team | None
) -> tuple[ApplicationSpec | None, list[Problem]]:
    """Return an application's definition (None if its structure is invalid) and its problems.

    `team` is the application's, which may not have all catalogs.
    """
    try:
        form = parsing.parse_application(raw)
    except Invalid as error:
        return None, list(error.problems)
    seen = surroundings.look(form)
    problems = application_rules.application_problems(form, surroundings=seen)
    problems += local_roots.conf_problems(form, name)
    problems += unbound_secrets(parsing.as_json(form), holder_named(name))
    problems += access_problems(form.catalogs, team)
    problems += surroundings.listener_problems(form)
    return form, problems + surroundings.script_problems(form)


def breaks(
    raw: Mapping[str, Any], before: Around, after: Around, *, in_set: bool = False
) -> list[Problem]:
    """Return why a query, with its stored definition, could not run in its changed application.

    Values that are already rejected are omitted. The fields are those of the application. `in_set`
    says that the same set can change the query too.
    """
    query, form = before.query, parsed_or_none(raw)
    assert query is not None, "a query that is stored"
    problems = stranded(query, before.application.spark, after.application.spark)
    if form is None:
        return problems
    counts = partition_counts(query.pk, raw)
    known = Counter((one.field, one.value) for one in _faults(form, before, counts))
    blamed = {"pool": "scheduler_mode", "trigger.kind": "master"}
    blamed |= {f"conf.{key}": f"conf.{key}" for key in (SOURCE_NAMES, SINK_NAMES)}
    if not set(before.pools) <= set(after.pools):
        blamed["pool"] = "pools"
    old, new = before.application, after.application
    other = (
        "master"
        if old.master != new.master and old.connectors == new.connectors
        else ("connectors")
    )
    if new.runs_in_pod and not old.runs_in_pod:
        other = "driver"
    if before.application.spark != after.application.spark:
        blamed["trigger.kind"] = other = "spark"
    known.update((one.field, one.value) for one in checkpoint_store(query, before.application))
    faults = [*_faults(form, after, counts), *checkpoint_store(query, after.application)]
    counted = Counter((one.field, one.value) for one in faults)
    way_out = f"Change query {query.name} first{', or in the same set' if in_set else ''}."
    ways_out = {}
    if other == "driver":  # a checkpoint stays where it is
        ways_out["checkpoint"] = (
            f"Define {query.name} again with a checkpoint on S3 or HDFS, for example "
            f"s3a://bucket/checkpoints/{query.name}, in an application whose driver is a pod."
        )
    return problems + [
        Problem(
            blamed.get(one.field, other),
            one.value,
            f"would break query {query.name}: its {one.field} {one.message}",
            ways_out.get(one.field, way_out),
        )
        for one in faults
        if counted[one.field, one.value] > known[one.field, one.value]
    ]


def stranded(query: Query, before: Spark, after: Spark) -> list[Problem]:
    """Return why a query could not continue its checkpoint with an older Spark."""
    if not is_older(after, before):
        return []
    found = written_of(query)
    refused = cannot_go_back(found, after) if found is not None else ""
    if not refused:
        return []
    return [Problem("spark", after, f"would strand query {query.name}: {refused}", WAY_OUT)]
