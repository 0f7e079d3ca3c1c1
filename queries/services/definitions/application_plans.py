"""Plan the applications of a set: their definitions, pools, labels and teams."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate_ground.masking import unmask
from queries.domain.definitions.locations import with_s3a
from queries.domain.definitions.spec import ApplicationSpec, PoolSpec
from queries.domain.errors import Invalid, Problem
from queries.domain.states import Desired, Phase
from queries.domain.validation.joining import kind_problem
from queries.models.access.accounts import Team
from queries.models.applications import Application
from queries.roles import AuthorRights
from queries.selectors import manifests
from queries.selectors.access import team_for_new
from queries.selectors.manifests import ExistingRows
from queries.services.definitions.drafts import application_form
from queries.services.definitions.items import SetItem, below_spec
from queries.services.definitions.rights import insist_application


@dataclass(frozen=True, slots=True)
class Host:
    """An application as it will be after the apply; its queries are validated against it."""

    name: str
    form: ApplicationSpec
    pools: Mapping[str, PoolSpec]
    row: Application | None = None  # None: it does not exist yet
    refused: bool = False  # its own manifest has errors


@dataclass(slots=True)
class Teams:
    """The teams of new applications; each name is looked up only once."""

    user: Any
    known: dict[str, Team | None] = field(default_factory=dict)

    def of(self, item: SetItem) -> None:
        """Set a new application's team, or record the problems with it."""
        assert item.manifest is not None
        name = item.manifest.team
        try:
            if name not in self.known:
                self.known[name] = team_for_new(self.user, name)
        except Invalid as error:
            item.problems += [
                Problem("metadata.team", one.value, one.message, one.way_out)
                for one in error.problems
            ]
        else:
            item.team = self.known[name]


def plan_applications(
    items: list[SetItem], existing_rows: ExistingRows, *, rights: AuthorRights, user: Any = None
) -> dict[str, Host]:
    """Compare and validate applications; return both those in the set and existing ones.

    `rights` are the author's. Without a user, an application is saved
    alone: the caller has checked the other rights and chosen the team, and everything that is wrong
    with its definition is reported, even if it does not change.
    """
    teams = Teams(user)
    hosts = {
        name: Host(
            name,
            existing_rows.application_spec(row),
            manifests.pools_of_state(existing_rows.application_state(row)),
            row,
        )
        for name, row in existing_rows.applications.items()
    }
    for item in items:
        row = item.application
        spec = _compare(item, row, existing_rows)
        before = hosts[item.name].form if row is not None else None
        form = before
        if item.is_new and user is not None:
            teams.of(item)
        if item.is_new or item.spec_differs or user is None:
            form = _validated(item, spec, before)
        if form is not None:
            insist_application(rights, before, form)
        pools = manifests.pools_of_state(item.after)
        known = form or before or ApplicationSpec()
        hosts[item.name] = Host(item.name, known, pools, row, bool(item.problems))
    return hosts


def _compare(item: SetItem, row: Application | None, existing_rows: ExistingRows) -> dict[str, Any]:
    """Compare an application with the existing one; return its definition without pools."""
    manifest = item.manifest
    assert manifest is not None
    spec = manifest.spec
    if row is not None:
        newest = existing_rows.application_revisions[row.pk]
        item.before, item.revision = existing_rows.application_state(row), newest.number
        spec = unmask(spec, before=newest.spec)
        if manifest.team and manifest.team != (row.team.name if row.team else ""):
            item.refuse(
                "metadata.team",
                manifest.team,
                f"is not the application's team, which is {row.team or 'none'}.",
                f"Remove it, or ask an admin to PUT /api/v1/applications/{row.name}/team/.",
            )
    script = getattr(row, "script", None)
    if script is not None:
        item.before = manifests.with_desired(item.before, script.desired)
        item.completed = script.phase == Phase.COMPLETED
    spec = dict(with_s3a(spec, item.notes, "spec"))
    item.after = manifests.with_desired(manifests.of_manifest(manifest, spec), manifest.desired)
    if manifest.desired != (script.desired if script is not None else Desired.STOPPED):
        item.desired = manifest.desired
    item.compare()
    return spec


def _validated(
    item: SetItem, spec: dict[str, Any], before: ApplicationSpec | None
) -> ApplicationSpec | None:
    """Return the form of a definition, and record its problems."""
    team = item.application.team if item.application is not None else item.team
    form, problems = application_form(spec, item.name, team)
    item.problems += below_spec(problems)
    item.application_form = form
    if form is not None and before is not None:
        other = kind_problem(before.kind, form.kind)
        item.problems += below_spec([other] if other else [])
    return form
