"""A viewer finds a secret on no address: each one is opened, over drivers that have said it.

The addresses are the installation's own list, and whatever its pages lead to, so a new page is
looked at without a line here. Rows are looked at too, whatever table they are in.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core import serializers
from django.db import models
from django.test import Client, override_settings
from django.utils import timezone

from queries.domain.protocol import RunError
from queries.domain.states import Verb
from queries.models.access.accounts import Grant, KeptAnswer, Team
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys import Deploy, DeployChange
from queries.models.history import Operation
from queries.services.procedures.bulk_operations import begin_many
from tests.scenarios.deploys.way import NOTE, Way
from tests.scenarios.scripts.stage import ScriptStage
from tests.security.rights.people import TEAM
from tests.security.rights.test_rights import ADDRESSES
from tests.security.rights.world import addresses_of, build
from tests.security.test_what_pages_show import links_of
from tests.services.bulk import advance_many
from tests.services.secrets.binding import bind

pytestmark = pytest.mark.django_db

PLAIN = "tr0ub4dor"  # of each application, by reference; short, and like any word
WRITTEN = "correct horse"  # of each application's configuration, written out in full
SAID = f"login with {PLAIN} and {WRITTEN} denied"
ERROR = RunError(
    "", "java.lang.SecurityException", SAID, f"{SAID}\n\tat com.acme.Login.go(L.java:1)"
)
#: Streams that do not end, and what is another server's.
ENDLESS = {"live"}
#: Columns that hold definitions, as their authors wrote them.
DEFINITIONS = {
    *("applicationrevision.spec", "queryrevision.spec", "deploy.asked", "deploychange.spec"),
    *("managed.applied", "operation.arguments"),
}
LAUNCHERS = (
    *("queries.views.failures.logs", "queries.api.supervision.history"),
    *("queries.views.probes", "queries.api.probes"),
)


class Indiscreet(ScriptStage):
    """An installation in which every driver that fails says what it knows."""

    def application(self, name: str, **spec: Any) -> Application:
        bind("file:vault", name)
        secret = {"env": {"VAULT": "file:vault"}, "conf": {"spark.a.password": WRITTEN}}
        return super().application(name, **spec, **secret)

    def fail(self, name: str, error: RunError, batch: int | None = None) -> None:
        super().fail(name, ERROR, batch)

    def tell(self) -> None:
        """Every driver has written it into its log."""
        for driver in apps.get_model("queries", "Driver").objects.select_related("application"):
            self.launcher.log(driver.application.name, driver.epoch, f"first line\n{SAID}\n")


@pytest.fixture(scope="module")
def keys(story: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return the parts of addresses of an installation in which everything has been said."""
    folder: Path = tmp_path_factory.mktemp("secrets")
    (folder / "vault").write_text(f"{PLAIN}\n")
    with pytest.MonkeyPatch.context() as patch, override_settings(SECRETS_DIR=folder):
        stage = Indiscreet()
        stage.now = timezone.now()
        for module in LAUNCHERS:
            patch.setattr(f"{module}.launcher", lambda: stage.launcher)
        found = build(stage)
        found |= _played_on(stage)
        yield found


def _played_on(stage: Indiscreet) -> dict[str, dict[str, str]]:
    """A script fails, a deploy fails, many are started."""
    stage.tell()
    stage.running("rides")
    stage.tell()
    stage.fail_script(ERROR, batch=3)
    lena = User.objects.create_user("lena")
    lena.groups.add(Group.objects.get(name="author"))
    Grant.objects.create(user=lena, all_teams=True, write_python=True)
    client = Client()
    client.force_login(lena)
    stage.application("tills").team = Team.objects.get(name=TEAM)
    stage.query("till", "tills")
    stage.up("till", "tills")
    stage.tell()
    asked = {"apply": _set("till"), "on_failure": "stop"}
    answer = _post(client, "/api/v1/deploys/", asked)
    assert answer.status_code == 202, answer.content
    deploy = Deploy.objects.get(uuid=answer.json()["id"])
    way = Way(stage)
    way.row = deploy
    way.work()
    way.leave("till", "tills")
    stage.ready("tills")
    stage.tell()
    stage.fail("till", ERROR)
    assert way.work().state == "FAILED"
    row = Query.objects.get(name="sales")
    applied = {"owner": "repo", "manifests": [_manifest("sales", labels={"a": "b"})]}
    assert _post(client, "/api/v1/apply/", applied).status_code == 200
    many = begin_many(Verb.START_MANY, [row], actor="lena", now=timezone.now())
    advance_many(many.pk, now=timezone.now())
    run = stage.last_run("till")
    return {
        "deploys/ of one that failed": {"uuid": str(deploy.uuid)},
        "operations/ on many": {"uuid": str(many.uuid)},
        "runs/ of the deploy": {"run_id": str(run.pk)},
        "queries/ of the deploy": {"name": "till"},
        "queries/ of the script": {"name": "job~rides"},
        "applications/ of the script": {"name": "job", "epoch": str(stage.driver("job").epoch)},
    }


def _post(client: Client, address: str, body: Any) -> Any:
    key = {"Idempotency-Key": address}
    return client.post(address, json.dumps(body), content_type="application/json", headers=key)


def _manifest(name: str, **metadata: Any) -> dict[str, Any]:
    row = Query.objects.get(name=name)
    about = {"name": name, "application": row.application.name, **metadata}
    spec = row.revisions.latest("number").spec | {"conf": {NOTE: "new"}}
    one = {"apiVersion": "headgate/v1", "kind": "Query", "metadata": about, "spec": spec}
    return {"manifest": one}


def _set(name: str) -> dict[str, Any]:
    return {"owner": "repo", "manifests": [_manifest(name)]}


@pytest.fixture(scope="module")
def shown(keys: dict[str, Any]) -> dict[str, str]:
    """Return what a viewer is shown, by address: the list of addresses, and where links lead."""
    vera = User.objects.create_user("vera-who-looks")
    vera.groups.add(Group.objects.get(name="viewer"))
    client = Client(raise_request_exception=False)
    client.force_login(vera)
    ahead = [
        address
        for name, (route, _) in ADDRESSES.items()
        if name not in ENDLESS
        for address in addresses_of(route, keys)
    ]
    ahead += ["/", "/api/v1/export/?application=job", "/queries/till/log/?q=denied"]
    found: dict[str, str] = {}
    while ahead and len(found) < 1500:
        address = ahead.pop()
        if address in found or address.startswith(("/events/", "/live")):
            continue
        answer: Any = client.get(address)
        told = b"".join(answer.streaming_content) if answer.streaming else answer.content
        found[address] = f"{answer.status_code} {answer.headers} {told.decode(errors='replace')}"
        ahead += [one for one in links_of(address, answer) if "?" not in one]
    return found


@pytest.mark.guarantee("G-SECRET-7")
def test_no_address_shows_a_viewer_a_secret(shown: dict[str, str]) -> None:
    told = {address for address, text in shown.items() if PLAIN in text or WRITTEN in text}
    assert told == set()
    broken = {address for address, text in shown.items() if text.startswith("5")}
    assert broken <= {"/readyz"}  # it says that no worker is there


@pytest.mark.parametrize(
    "part",
    [
        *("/queries/delays/log/", "/queries/delays/log/download/", "/queries/till/log/?q=denied"),
        *("/api/v1/runs/", "/api/v1/applications/job/drivers/", "/failures/", "/api/v1/failures/"),
        *("/deploys/", "/api/v1/deploys/", "/queries/till/", "/api/v1/queries/till/"),
    ],
)
def test_the_drivers_have_said_it_there(shown: dict[str, str], part: str) -> None:
    """Else a page without a secret proves nothing."""
    assert [one for one, text in shown.items() if one.startswith(part) and "denied" in text]


def test_what_a_definition_holds_is_exported_and_compared_masked(shown: dict[str, str]) -> None:
    for address in ("/api/v1/export/", "/api/v1/applications/job/", "/applications/job/revisions/"):
        assert "spark.a.password" in shown[address], address
        assert "file:vault" in shown[address], address


def test_no_row_holds_a_secret_but_what_an_author_has_written(keys: dict[str, Any]) -> None:
    for filled in (Deploy, DeployChange, KeptAnswer, Operation):
        assert filled._default_manager.exists()
    held: defaultdict[str, str] = defaultdict(str)
    for model in apps.get_models():
        if model._meta.app_label not in ("queries", "listeners"):
            continue
        for row in json.loads(serializers.serialize("json", model._default_manager.all())):
            for name, value in row["fields"].items():
                held[f"{model._meta.model_name}.{name}"] += json.dumps(value)
    assert "denied" in held["failure.log_tail"]
    assert "denied" in held["deploychange.evidence"]
    assert {name for name, text in held.items() if PLAIN in text} == set()
    assert {name for name, text in held.items() if WRITTEN in text} <= DEFINITIONS


def test_the_table_of_columns_is_of_columns_that_are_there() -> None:
    for name in DEFINITIONS:
        model, column = name.split(".")
        found = apps.get_model("queries", model)._meta.get_field(column)
        assert isinstance(found, models.JSONField)
