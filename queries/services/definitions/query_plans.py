"""Plan the queries of a set: compare them in bulk, and validate new and changed queries."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate_ground.masking import unmask
from queries.domain.definitions import parsing
from queries.domain.definitions.locations import NotALocation, normalized_location, with_s3a
from queries.domain.definitions.spec import HOLDING_TRIGGERS, ApplicationSpec
from queries.domain.errors import Invalid
from queries.domain.manifests.forms import Manifest
from queries.domain.states import Desired, Phase
from queries.domain.triggers.cores import ground_of, permanent_cores
from queries.domain.validation.joining import joining_problems, team_problem
from queries.domain.validation.query_rules import name_problems
from queries.domain.validation.skipped import unchecked_sql
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import AuthorRights
from queries.selectors import manifests
from queries.selectors.access import insist
from queries.selectors.manifests import ExistingRows
from queries.selectors.probes import change_of
from queries.selectors.rows import newest_revisions
from queries.selectors.triggers.cores import cores_beside, parsed_or_none, partition_counts
from queries.services import local_roots
from queries.services.definitions.application_plans import Host, Teams
from queries.services.definitions.definition_rows import checked_columns
from queries.services.definitions.drafts import (
    Around,
    Places,
    application_form,
    breaks,
    checkpoint_store,
    conf_of,
    holder_of,
    judge,
    no_location,
    stranded,
)
from queries.services.definitions.items import Answers, SetItem, below_metadata, below_spec
from queries.services.definitions.rights import insist_application, insist_query_form
from queries.services.definitions.sql_check import ask_spark_of_many
from queries.services.kafka import topics

#: Maximum time for querying Spark's parser and the brokers, in seconds, whatever the size of the
#: set. What is not answered by then is validated without them, as if they did not respond.
ASK_LIMIT_S = 10.0


def plan_queries(
    items: list[SetItem],
    existing_rows: ExistingRows,
    hosts: dict[str, Host],
    *,
    rights: AuthorRights,
    user: Any = None,
) -> None:
    """Compare and validate queries in their applications, as these will be after the apply.

    `rights` and `user` are as for `plan_applications`.
    """
    teams, places, alone = Teams(user), Places(), user is None
    taken = _taken_names(items, hosts)
    for item in items:
        if item.query is not None:
            _compare(item, item.query, existing_rows)
        else:
            _place(item, existing_rows, hosts, places, teams, taken, user)
    fresh = [
        item
        for item in items
        if alone or ((item.is_new or item.spec_differs) and not item.problems)
    ]
    for item in fresh:
        row = existing_rows.query_revisions.get(item.query.pk) if item.query is not None else None
        try:
            item.query_form = parsing.parse_query(item.after["spec"])
        except Invalid as error:  # of a set: a masked text, once restored, no longer fits
            item.problems += below_spec(error.problems)
        else:
            insist_query_form(rights, row.spec if row else None, item.query_form)
        if item.own is not None:
            insist_application(rights, None, item.own)
    sound = [item for item in fresh if item.query_form is not None and (alone or not item.problems)]
    # A definition that is saved alone may have any structure, unless it is sound.
    _validate(sound, Beside(sound if alone else items), existing_rows, hosts, alone=alone)


def _compare(item: SetItem, row: Query, existing_rows: ExistingRows) -> None:
    manifest, newest = item.manifest, existing_rows.query_revisions[row.pk]
    assert manifest is not None
    item.before = manifests.with_desired(existing_rows.query_state(row), row.desired)
    item.revision, item.completed = newest.number, row.phase == Phase.COMPLETED
    item.host = row.application.name
    spec = with_s3a(unmask(manifest.spec, before=newest.spec), item.notes, "spec")
    after = manifests.of_manifest(manifest, spec)
    item.after = manifests.with_desired(after, manifest.desired)
    item.compare()
    if manifest.application and manifest.application != item.host:
        item.refuse(
            "metadata.application",
            manifest.application,
            f"is not the query's application, which is {item.host} and cannot be changed.",
            "Remove it, or delete the query and create it again.",
        )
    if manifest.checkpoint:
        _same_place(item, manifest, existing_rows.locations.get(row.pk, []))
    if manifest.desired is not None and manifest.desired != row.desired:
        item.desired = manifest.desired


def _same_place(item: SetItem, manifest: Manifest, locations: list[str]) -> None:
    """Record a problem if a manifest specifies a checkpoint that the query never had.

    After a rewind or reset, the query has another directory, but its file still names the first
    one.
    """
    try:
        location = local_roots.canonical_checkpoint(manifest.checkpoint)
    except NotALocation as error:
        item.problems += below_spec([no_location(manifest.checkpoint, error)])
        return
    if normalized_location(location) not in map(normalized_location, locations):
        item.refuse(
            "spec.checkpoint",
            manifest.checkpoint,
            f"is not the query's checkpoint, which is {locations[0] if locations else 'unknown'}.",
            "Remove it; only rewind, reset and clone change a checkpoint.",
        )


def _place(
    item: SetItem,
    existing_rows: ExistingRows,
    hosts: dict[str, Host],
    places: Places,
    teams: Teams,
    taken: set[str],
    user: Any,
) -> None:
    """Find the application and the checkpoint of a new query."""
    manifest = item.manifest
    assert manifest is not None
    spec = with_s3a(manifest.spec, item.notes, "spec")
    with_s3a(manifest.checkpoint, item.notes, "spec.checkpoint")
    item.application_spec = with_s3a(item.application_spec, item.notes, "application_spec")
    item.after = manifests.with_desired(manifests.of_manifest(manifest, spec), manifest.desired)
    if manifest.desired is Desired.RUNNING:
        item.desired = manifest.desired
    if manifest.application and (manifest.application in hosts or user is not None):
        _join(item, manifest, hosts, user)
    else:
        if manifest.application:
            item.refuse(
                "metadata.application",
                manifest.application,
                "is not an existing application.",
                "Create the application first, or leave the field empty to give the query its own.",
            )
        item.host = next(name for name in local_roots.numbered(item.name) if name not in taken)
        taken.add(item.host)
        if user is not None:
            teams.of(item)
        form, found = application_form(item.application_spec or {}, item.host, item.team)
        item.problems += [replace(one, field=f"application_spec.{one.field}") for one in found]
        item.own = form or ApplicationSpec()
        hosts[item.host] = Host(item.host, item.own, {})
    if user is None:
        misnamed = name_problems(item.name, in_use=item.name in existing_rows.queries)
        item.problems += below_metadata(misnamed)
        if misnamed and not manifest.checkpoint:
            return
    host, checkpoint = hosts.get(item.host), manifest.checkpoint
    row = host.row if host else None
    own = item.own is not None or (row is not None and row.own)
    item.location, found = places.of(
        item.name,
        checkpoint,
        host_name=item.host,
        host=row,
        own=own,
        form=host.form if host else None,
    )
    item.problems += below_spec(found)
    if host is not None:
        item.problems += below_spec(checkpoint_store(item.location, host.form))


def _join(item: SetItem, manifest: Manifest, hosts: Mapping[str, Host], user: Any) -> None:
    item.host = manifest.application
    host = hosts.get(manifest.application)
    if host is None:
        way_out = "Add its manifest to the set, or remove the field for a separate application."
        message = "is neither an existing application nor in the set."
        item.refuse("metadata.application", manifest.application, message, way_out)
        return
    if host.refused:
        message = "has a manifest with errors."
        way_out = "Correct that manifest first."
        item.refuse("metadata.application", manifest.application, message, way_out)
    if host.row is not None and user is not None:
        insist(user, [host.row])
    holder = holder_of(host.row) if host.row is not None else ""
    found = joining_problems(item.host, kind=host.form.kind, holder=holder)
    if problem := team_problem(item.host, manifest.team):
        found.append(problem)
    item.problems += below_metadata(found)
    if item.application_spec is not None:
        message = "applies only to the query's own application."
        way_out = f"Change application {item.host} itself, or leave the application empty."
        item.refuse("application_spec", "", message, way_out)


def _taken_names(items: Sequence[SetItem], hosts: Mapping[str, Host]) -> set[str]:
    """Return the names that a new query's own application cannot have because they are taken."""
    if not any(item.is_new and item.manifest and not item.manifest.application for item in items):
        return set()
    living = Application.objects.filter(archived_at=None).order_by()
    if len(items) == 1:
        living = living.filter(name__startswith=items[0].name)
    return {*living.values_list("name", flat=True), *hosts}


def _validate(
    fresh: list[SetItem],
    beside: "Beside",
    existing_rows: ExistingRows,
    hosts: Mapping[str, Host],
    *,
    alone: bool,
) -> None:
    """Record the problems of new and changed queries."""
    deadline = time.monotonic() + ASK_LIMIT_S
    forms = [hosts[item.host].form for item in fresh]
    asked = [
        (item.after["spec"], conf_of(form), form.spark)
        for item, form in zip(fresh, forms, strict=True)
        if item.answers is None
    ]
    verdicts = iter(ask_spark_of_many(asked, limit_s=ASK_LIMIT_S))
    for item in fresh:
        assert item.query_form is not None
        host, row, seen = hosts[item.host], item.query, None
        if item.answers is None:
            verdict = next(verdicts)
        else:
            verdict, seen = item.answers.verdict, item.answers.seen
        around = Around(
            host.name,
            host.form,
            host.pools,
            beside.of(host, but=item.name),
            row,
            None if row is None or item.gap_accepted else existing_rows.query_revisions[row.pk],
            topics.begins(row, item.manifest.checkpoint if item.manifest else ""),
        )
        ask = time.monotonic() < deadline and not item.problems
        judged = judge(item.query_form, around, sql_verdict=verdict, ask=ask, seen=seen)
        item.problems += below_spec(judged.problems)
        item.checked, item.answers = judged.checked, Answers(verdict, judged.seen)
        if row is not None and not judged.problems and not alone:
            columns = checked_columns(item.checked)
            spec, by = item.after["spec"], columns["state_by"]
            item.state_change = change_of(row, spec, columns["state"], by)


def refuse_unchecked(items: Iterable[SetItem], existing_rows: ExistingRows) -> None:
    """Record a problem for SQL that is not checked, also of queries that do not change."""
    for item in items:
        row = existing_rows.query_revisions.get(item.query.pk) if item.query is not None else None
        changes = row is None or item.spec_differs
        skips = item.checked.skipped if changes or row is None else row.skipped
        item.problems += below_spec(unchecked_sql(skips))


def look_for_orphans(
    items: list[SetItem],
    queries: list[SetItem],
    existing_rows: ExistingRows,
    hosts: Mapping[str, Host],
    *,
    leaving: Collection[int] = (),
    alone: bool = False,
) -> None:
    """Record existing queries that could not run with the set's version of their application.

    Queries that the set itself changes have already been validated in their new application;
    `leaving` are the ids of those that it deletes. `alone` says that one application is saved.
    """
    validated = {item.query.pk for item in queries if item.query is not None and item.spec_differs}
    beside = Beside(queries)
    for item in items:
        row = item.application
        if row is None or not item.changes or (item.problems and not alone):
            continue
        old = existing_rows.application_spec(row)
        form = item.application_form or old
        if form.kind != old.kind:
            continue
        rows = Query.objects.filter(application=row, archived_at=None)
        left = {one.pk: one for one in rows.exclude(pk__in={*leaving, *validated})}
        if form.kind == "script":  # it defines its queries itself when it runs
            for query in left.values():
                item.problems += below_spec(stranded(query, old.spark, form.spark))
            continue
        pools = manifests.pools_of_state(item.before), manifests.pools_of_state(item.after)
        for pk, revision in sorted(newest_revisions(list(left)).items()):
            cores = beside.of(hosts[item.name], but=left[pk].name)
            before = Around(item.name, old, pools[0], cores, left[pk])
            after = replace(before, application=form, pools=pools[1])
            found = breaks(revision.spec, before, after, in_set=not alone)
            item.problems += below_spec(found)


class Beside:
    """The cores that queries occupy permanently in their application, after the apply."""

    def __init__(self, items: list[SetItem]) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)
        self._holding: dict[str, list[SetItem]] = defaultdict(list)
        for item in items:
            self._names[item.host].add(item.name)
            if item.after.get("spec", {}).get("trigger", {}).get("kind") in HOLDING_TRIGGERS:
                self._holding[item.host].append(item)
        self._there: dict[str, dict[str, int]] = {}

    def of(self, host: Host, *, but: str) -> dict[str, int]:
        """Return the cores held in an application, by query name, excluding one query."""
        if host.row is not None and host.name not in self._there:
            there = cores_beside(host.row, but=None)
            names = self._names[host.name]
            self._there[host.name] = {n: cores for n, cores in there.items() if n not in names}
        found = {one.name: _cores(one, host.form) for one in self._holding[host.name]}
        permanent_cores = self._there.get(host.name, {}) | found
        return {name: cores for name, cores in permanent_cores.items() if cores and name != but}


def _cores(item: SetItem, application: ApplicationSpec) -> int:
    spec = item.after["spec"]
    form = item.query_form or parsed_or_none(spec)
    if form is None:
        return 0
    counts = partition_counts(item.query.pk, spec) if item.query is not None else {}
    ground = ground_of(form, application, host_cores=None, partitions=counts, beside={})
    return permanent_cores(form, ground)
