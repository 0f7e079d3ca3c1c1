"""One of everything that an address can be about, all of it of the team's application."""

import re
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from queries.domain.deploys.request import Good
from queries.domain.states import LossKind, Verb
from queries.models.access.accounts import GroupRole, SavedView, Team
from queries.models.alerts import AlertRule, Channel, Incident, Maintenance
from queries.models.applications import Application, UploadedCode
from queries.models.catalogs import Catalog
from queries.models.checkpoints import Loss, Snapshot
from queries.models.definitions import Checkpoint, Managed, Query
from queries.models.deploys import Deploy
from queries.models.drivers import Driver, Run
from queries.models.grants import CodeHost, GivenRoot, SecretBinding
from queries.models.history import Failure, FailureGroup, Operation
from queries.services.access.tokens import create_token
from queries.services.procedures.bulk_operations import begin_many
from queries.views.console.documentation import FOLDER
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage
from tests.security.rights.people import OTHER, TEAM

Keys = dict[str, str]


def build(stage: Stage | None = None) -> dict[str, Keys]:
    """Make it all; return the values of the parts of addresses, by the beginning of the route.

    What is there of applications and queries is played on `stage`, an empty one.
    """
    stage = stage or Stage()
    now = timezone.now()
    for name in (TEAM, OTHER):
        Team.objects.create(name=name, created_at=now)
    _of_teams(stage)
    stage.up("delays", "flights")
    stage.fail("delays", NO_SUCH_SOURCE)
    flights = Application.objects.get(name="flights")
    owner = User.objects.create_user("owner")
    row, _ = create_token(user=owner, name="ci", actor="ada", now=timezone.now())
    group = FailureGroup.objects.get()
    snapshot = Snapshot.objects.create(
        checkpoint=Checkpoint.objects.get(query__name="delays"),
        batch=1,
        location="file:///checkpoints/kept",
        taken_at=now,
    )
    incident = Incident.objects.create(
        kind="failed",
        fingerprint="one",
        severity="critical",
        title="delays: failed",
        application=flights,
        opened_at=now,
        first_opened_at=now,
        seen_at=now,
    )
    loss = Loss.objects.create(
        query=Query.objects.get(name="delays"),
        kind=LossKind.LATE,
        source="dedupe",
        records=1,
        noticed_at=now,
    )
    window = _alerts(now)
    _managed(now)
    group_role = GroupRole.objects.create(
        group="staff", role="viewer", created_at=now, created_by="ada"
    )
    given = {"given_at": now, "given_by": "ada"}
    binding = SecretBinding.objects.create(
        secret="file:kept", holder_kind="application", holder="flights", **given
    )
    root = GivenRoot.objects.create(application="flights", root="/srv/flights", **given)
    host = CodeHost.objects.create(host="git.example.org", **given)
    Catalog.objects.create(
        name="lake",
        type="rest",
        address="https://c.example.org",
        auth="token",
        created_at=now,
        created_by="ada",
        changed_at=now,
        changed_by="ada",
    )
    upload = UploadedCode.objects.create(
        sha256="0" * 64, files=1, bytes=1, uploaded_at=now, uploaded_by="ada", host="here"
    )
    view = SavedView.objects.create(user=owner, name="mine", address="q=a", created_at=now)
    operation = Operation.objects.filter(query__name="delays").first()
    driver = Driver.objects.filter(application=flights).first()
    assert operation is not None
    assert driver is not None
    deploy = Deploy.objects.create(actor="ada", good=Good().model_dump(), created_at=now)
    deploy.changes.create(wave=1, kind="Query", name="delays", application=flights)
    new, labels, scripts, pruned = _of_flights_alone(now, flights)
    return {
        "pods/": {"epoch": "1", "name": "status.json", "sha256": "0" * 64},
        "deploys/": {"uuid": str(deploy.uuid)},
        "deploys/ of new things": {"uuid": new},
        "deploys/ of labels": {"uuid": labels},
        "operations/ of scripts": {"uuid": scripts},
        "operations/ that prune": {"uuid": pruned},
        "alerts/channels/": {"name": "pager", "verb": "test"},
        "alert-channels/": {"name": "pager"},
        "alerts/rules/": {"name": "nights"},
        "alert-rules/": {"name": "nights"},
        "alerts/maintenance/": {"window_id": str(window.pk)},
        "maintenance/": {"window_id": str(window.pk)},
        "alerts/": {"uuid": str(incident.uuid), "verb": "note"},
        "incidents/": {"uuid": str(incident.uuid)},
        "operations/": {"uuid": str(operation.uuid)},
        "failures/": {"failure_id": str(Failure.objects.get().pk), "group_id": str(group.pk)},
        "failure-groups/": {"group_id": str(group.pk)},
        "docs/images/": {"name": min(file.name for file in (FOLDER / "images").iterdir())},
        "docs/": {"name": "concepts"},
        "runs/": {"run_id": str(Run.objects.earliest("pk").pk)},
        "settings/teams/": {"name": TEAM},
        "teams/": {"name": TEAM},
        "settings/tokens/": {"uuid": str(row.uuid)},
        "tokens/": {"uuid": str(row.uuid)},
        "settings/users/": {"user_id": str(owner.pk)},
        "settings/groups/": {"row_id": str(group_role.pk)},
        "settings/secrets/": {"binding_id": str(binding.pk)},
        "secret-bindings/": {"binding_id": str(binding.pk)},
        "settings/allowed-paths/": {"path_id": str(root.pk)},
        "allowed-paths/": {"path_id": str(root.pk)},
        "code/": {"digest": upload.digest},
        "settings/catalogs/": {"name": "lake"},
        "catalogs/": {"name": "lake"},
        "settings/code-hosts/": {"host_id": str(host.pk)},
        "code-hosts/": {"host_id": str(host.pk)},
        "connectors/": {"spark": "4.2", "name": "none"},
        "sparks/": {"version": "4.2"},
        "settings/system/sparks/": {"version": "4.2"},
        "group-roles/": {"row_id": str(group_role.pk)},
        "saved-views/": {"view_id": str(view.pk)},
        "applications/": {"name": "flights", "pool": "wide", "epoch": str(driver.epoch)},
        "queries/": {
            "name": "delays",
            "number": str(snapshot.pk),
            "uuid": str(operation.uuid),
            "loss_id": str(loss.pk),
        },
    }


def _of_teams(stage: Stage) -> None:
    for name, team in (("flights", TEAM), ("shops", OTHER)):
        application = stage.application(name)
        application.team = Team.objects.get(name=team)
        application.save()
    stage.query("delays", "flights")
    stage.query("sales", "shops")
    Application.objects.get(name="flights").pools.create(name="wide")


def _of_flights_alone(now: Any, flights: Application) -> list[str]:
    """Make what names the team in other ways than by a query; return the UUIDs."""
    data = Team.objects.get(name=TEAM)
    touches: list[dict[str, Any]] = [
        {"application": None, "name": "not-there-yet", "team": data.pk},
        {"application": flights.pk, "name": "flights", "team": data.pk},
    ]
    about = {"actor": "ada", "good": Good().model_dump(), "created_at": now}
    deploys = [Deploy.objects.create(touches=[one], **about) for one in touches]
    verbs = (Verb.START_MANY, Verb.PRUNE)
    by: dict[str, Any] = {"actor": "ada", "now": now}
    asked = [begin_many(verb, [], applications=[flights], **by) for verb in verbs]
    return [*(str(row.uuid) for row in deploys), *(str(row.uuid) for row in asked)]


def _alerts(now: Any) -> Maintenance:
    Channel.objects.create(name="pager", kind="webhook", created_at=now, created_by="ada")
    AlertRule.objects.create(name="nights", created_at=now, created_by="ada")
    return Maintenance.objects.create(
        name="move",
        selector={"applications": ["flights"]},
        starts_at=now,
        ends_at=now + timedelta(hours=1),
        created_at=now,
        created_by="ada",
    )


def _managed(now: Any) -> None:
    about = {"owner": "repo", "applied": {}, "applied_at": now, "applied_by": "ada"}
    Managed.objects.create(query=Query.objects.get(name="delays"), **about)
    Managed.objects.create(application=Application.objects.get(name="flights"), **about)
    Managed.objects.create(rule=AlertRule.objects.get(name="nights"), **about)


def address_of(route: str, keys: dict[str, Keys]) -> str:
    """Return the address of a route, about what is there."""
    return addresses_of(route, keys)[0]


def addresses_of(route: str, keys: dict[str, Keys]) -> list[str]:
    """Return the addresses of a route: about what is there, then about others of its kind."""
    path = route.replace("^(?P<rest>.*)$", "nothing/at/all/")
    about = path.removeprefix("api/v1/")
    values: Keys = {}
    for beginning in sorted(keys, key=len):
        if about.startswith(beginning):
            values = values | keys[beginning]
    others = [
        held
        for named, held in keys.items()
        if " " in named and about.startswith(named.split()[0] + "<")
    ]
    return [
        "/" + re.sub(r"<\w+:(\w+)>", lambda match, of=values | other: of[match.group(1)], path)  # type: ignore[misc]
        for other in ({}, *others)
    ]
