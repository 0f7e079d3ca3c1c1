"""Plan the queries of a set: compare in bulk, and validate new and changed ones."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from headgate_ground.masking import unmask
from queries.domain.definitions import parsing
from queries.domain.definitions.locations import A_LOCATION, HeldLocations, NotALocation
from queries.domain.definitions.spec import HOLDING_TRIGGERS, ApplicationSpec
from queries.domain.errors import Invalid
from queries.domain.manifests.forms import Manifest
from queries.domain.states import Desired, Phase
from queries.domain.triggers.cores import ground_of, held
from queries.domain.validation.joining import joining_problems, team_problem
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import WRITE_PYTHON, may
from queries.selectors.access.insisting import insist
from queries.selectors.definitions.locations import held_checkpoints, retired_locations
from queries.selectors.manifests import states
from queries.selectors.manifests.present import Present
from queries.selectors.state_changes import change_of
from queries.selectors.triggers.cores import cores_beside, known_partitions, parsed_or_none
from queries.services import local_roots
from queries.services.definitions.code_rights import insist_query_form
from queries.services.definitions.definition_rows import checked_columns
from queries.services.definitions.drafts import (
    Checked,
    application_form,
    conf_of,
    form_problems,
    holder_of,
    skips,
)
from queries.services.definitions.sql_check import ask_spark_of_many
from queries.services.kafka import partitions
from queries.services.manifests.applications import Host, Teams
from queries.services.manifests.items import SetItem, below_metadata, below_spec
from queries.services.supervision.offset_gaps import gap_problems

#: Maximum time for querying Spark's parser and the brokers, in seconds, whatever the size of the
#: set. What is not answered by then is validated without them, as if they did not respond.
ASK_LIMIT_S = 10.0


def plan_queries(
    items: list[SetItem], present: Present, hosts: dict[str, Host], *, user: Any
) -> None:
    """Compare and validate queries in the applications as the set leaves them."""
    python, teams = may(user, WRITE_PYTHON), Teams(user)
    places = _Places(items)
    taken = _taken_names(items, hosts)
    for item in items:
        if item.query is not None:
            _compare(item, item.query, present)
        else:
            _place(item, hosts, places, teams, taken, user)
    fresh = [item for item in items if (item.is_new or item.spec_differs) and not item.problems]
    for item in fresh:
        try:
            item.query_form = parsing.parse_query(item.after["spec"])
        except Invalid as error:  # a masked text, once restored, no longer fits
            item.problems += below_spec(error.problems)
            continue
        row = present.query_revisions.get(item.query.pk) if item.query is not None else None
        insist_query_form(python, row.spec if row else None, item.query_form)
    _validate([item for item in fresh if not item.problems], items, present, hosts)


def _compare(item: SetItem, row: Query, present: Present) -> None:
    manifest, newest = item.manifest, present.query_revisions[row.pk]
    assert manifest is not None
    item.before = states.with_desired(present.query_state(row), row.desired)
    item.revision, item.completed = newest.number, row.phase == Phase.COMPLETED
    item.host = row.application.name
    after = states.of_manifest(manifest, unmask(manifest.spec, before=newest.spec))
    item.after = states.with_desired(after, manifest.desired)
    item.compare()
    if manifest.application and manifest.application != item.host:
        item.refuse(
            "metadata.application",
            manifest.application,
            f"is not its application, which is {item.host} and cannot be changed.",
            "Remove it, or delete the query and create it again.",
        )
    if manifest.checkpoint:
        _same_place(item, manifest, present.locations.get(row.pk, []))
    if manifest.desired is not None and manifest.desired != row.desired:
        item.desired = manifest.desired


def _same_place(item: SetItem, manifest: Manifest, locations: list[str]) -> None:
    """Record a problem if a manifest names a checkpoint that the query never had.

    After a rewind or reset, the query has another directory, while its file still names the first.
    """
    try:
        location = local_roots.canonical_checkpoint(manifest.checkpoint)
    except NotALocation as error:
        _no_location(item, manifest, error)
        return
    if location not in locations:
        item.refuse(
            "spec.checkpoint",
            manifest.checkpoint,
            f"is not its checkpoint, which is {locations[0] if locations else 'unknown'}.",
            "Remove it; only rewind, reset and clone change a checkpoint.",
        )


class _Places:
    """Allowed places for new checkpoints, looked up once for the whole set."""

    def __init__(self, items: Iterable[SetItem]) -> None:
        new = [item for item in items if item.is_new]
        self.held = HeldLocations(held_checkpoints() if new else {})
        self._left = retired_locations() if new else set()

    def of(self, item: SetItem, manifest: Manifest) -> None:
        """Set a new query's checkpoint, or record what is wrong with it."""
        if not manifest.checkpoint:
            location = local_roots.default_checkpoint(
                item.name, "" if item.own is not None else item.host, avoid=self._left
            )
        else:
            try:
                location = local_roots.canonical_checkpoint(manifest.checkpoint)
            except NotALocation as error:
                _no_location(item, manifest, error)
                return
            item.problems += below_spec(local_roots.checkpoint_problems(location, item.host))
        if problem := self.held.problem(location):
            item.problems += below_spec([problem])
        else:
            self.held.take(location, item.name)
        item.location = location


def _no_location(item: SetItem, manifest: Manifest, error: NotALocation) -> None:
    item.refuse("spec.checkpoint", manifest.checkpoint, str(error), A_LOCATION)


def _place(
    item: SetItem,
    hosts: dict[str, Host],
    places: _Places,
    teams: Teams,
    taken: set[str],
    user: Any,
) -> None:
    """Find the application and the checkpoint of a new query."""
    manifest = item.manifest
    assert manifest is not None
    item.after = states.with_desired(states.of_manifest(manifest, manifest.spec), manifest.desired)
    if manifest.desired is Desired.RUNNING:
        item.desired = manifest.desired
    if manifest.application:
        _join(item, manifest, hosts, user)
    else:
        item.host = next(name for name in local_roots.numbered(item.name) if name not in taken)
        taken.add(item.host)
        form, _ = application_form({}, item.host)
        item.own = form or ApplicationSpec()
        hosts[item.host] = Host(item.host, item.own, {})
        teams.of(item)
    places.of(item, manifest)


def _join(item: SetItem, manifest: Manifest, hosts: Mapping[str, Host], user: Any) -> None:
    item.host = manifest.application
    host = hosts.get(manifest.application)
    if host is None:
        way_out = "Add its manifest to the set, or remove the field for a separate application."
        message = "is neither an existing application nor in the set."
        item.refuse("metadata.application", manifest.application, message, way_out)
        return
    if host.refused:
        message = "has problems itself."
        way_out = "Correct its own manifest first."
        item.refuse("metadata.application", manifest.application, message, way_out)
    if host.row is not None:
        insist(user, [host.row])
    holder = holder_of(host.row) if host.row is not None else ""
    found = joining_problems(item.host, kind=host.form.kind, holder=holder)
    if problem := team_problem(item.host, manifest.team):
        found.append(problem)
    item.problems += below_metadata(found)


def _taken_names(items: Iterable[SetItem], hosts: Mapping[str, Host]) -> set[str]:
    """Return the names that are taken for a new query's own application."""
    if not any(item.is_new and item.manifest and not item.manifest.application for item in items):
        return set()
    living = Application.objects.filter(archived_at=None).order_by()
    return {*living.values_list("name", flat=True), *hosts}


def _validate(
    fresh: list[SetItem], items: list[SetItem], present: Present, hosts: Mapping[str, Host]
) -> None:
    """Record the problems of new and changed queries, as if each were being saved individually."""
    deadline = time.monotonic() + ASK_LIMIT_S
    asked = [(item.after["spec"], conf_of(hosts[item.host].form)) for item in fresh]
    verdicts = ask_spark_of_many(asked, limit_s=ASK_LIMIT_S)
    parsed = {id(item): verdict for item, verdict in zip(fresh, verdicts, strict=True)}
    beside = _Beside(items, hosts)
    for item in fresh:
        assert item.query_form is not None
        host, row = hosts[item.host], item.query
        counts = known_partitions(row.pk, item.after["spec"]) if row and _holds(item) else {}
        look = partial(
            form_problems,
            item.query_form,
            host_name=host.name,
            application=host.form,
            pools=sorted(host.pools),
            beside=beside.of(item),
            parsed=parsed.get(id(item)),
        )
        found = look(partitions=counts)
        beginning = partitions.begins(row, item.after.get("checkpoint", ""))
        asks = partitions.needed(item.after["spec"], beginning=beginning)
        if not found and asks and time.monotonic() < deadline:
            seen = partitions.look(item.after["spec"], host.name, row, beginning=beginning)
            found = look(partitions=seen.counts) + seen.problems
        if row is not None:
            found += gap_problems(row, present.query_revisions[row.pk], item.query_form)
        item.problems += below_spec(found)
        verdict = parsed[id(item)]
        left = (
            []
            if found
            else skips(item.query_form, application=host.form, partitions=counts, parsed=verdict)
        )
        item.checked = Checked(tuple(left), verdict.state if verdict else None)
        if row is not None and not found:
            columns = checked_columns(item.checked)
            spec, by = item.after["spec"], columns["state_by"]
            item.state_change = change_of(row, spec, columns["state"], by)


def _holds(item: SetItem) -> bool:
    return item.after.get("spec", {}).get("trigger", {}).get("kind") in HOLDING_TRIGGERS


class _Beside:
    """The cores that queries hold permanently in their application, after the apply."""

    def __init__(self, items: list[SetItem], hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts
        self._names: dict[str, set[str]] = defaultdict(set)
        self._holding: dict[str, list[SetItem]] = defaultdict(list)
        for item in items:
            self._names[item.host].add(item.name)
            if _holds(item):
                self._holding[item.host].append(item)
        self._there: dict[str, dict[str, int]] = {}

    def of(self, item: SetItem) -> dict[str, int]:
        """Return the cores held by a query's neighbours, by name."""
        host = self._hosts[item.host]
        if host.row is not None and host.name not in self._there:
            there = cores_beside(host.row, but=None)
            names = self._names[host.name]
            self._there[host.name] = {n: cores for n, cores in there.items() if n not in names}
        others = [one for one in self._holding[item.host] if one is not item]
        found = {one.name: _cores(one, host.form) for one in others}
        return self._there.get(host.name, {}) | {n: cores for n, cores in found.items() if cores}


def _cores(item: SetItem, application: ApplicationSpec) -> int:
    spec = item.after["spec"]
    form = item.query_form or parsed_or_none(spec)
    if form is None:
        return 0
    counts = known_partitions(item.query.pk, spec) if item.query is not None else {}
    ground = ground_of(form, application, host_cores=None, partitions=counts, beside={})
    return held(form, ground)
