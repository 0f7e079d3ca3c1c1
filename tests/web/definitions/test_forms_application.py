"""Applications and pools are defined, changed and deleted on pages."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from queries.models.applications import Application
from queries.services.definitions import catalog
from tests.web.browserless import Page


@pytest.fixture
def signed_in(client: Client, author: User) -> Client:
    client.force_login(author)
    return client


@pytest.fixture
def flights(db: None, now: datetime) -> Application:
    return catalog.create_application(name="flights", spec={}, actor="aude", now=now)


def test_a_filled_form_defines_an_application(signed_in: Client) -> None:
    form = Page(signed_in, "/new/application/", form="definition")
    form.press(
        "create",
        name="flights",
        memory="2g",
        conf="spark.sql.shuffle.partitions = 4",
        failure_scope="application",
    )
    spec = Application.objects.get(name="flights").revisions.get(number=1).spec
    assert (spec["memory"], spec["failure_scope"]) == ("2g", "application")
    assert spec["conf"] == {"spark.sql.shuffle.partitions": "4"}
    assert spec["policy"]["poison_limit"] == 3


def test_a_driver_in_a_pod_is_chosen_on_the_form_and_shown(
    signed_in: Client, settings: Settings
) -> None:
    settings.POD_IMAGE = ""
    form = Page(signed_in, "/new/application/", form="definition")
    assert form.fields["driver"] == "process"
    after = form.press("create", name="flights", driver="pod", master="spark://h:7077")
    assert "HEADGATE_POD_IMAGE" in after.error_at("conf")
    settings.POD_IMAGE = "example.org/headgate:1"
    after = after.press("create")
    assert "not possible for a driver in a pod" in after.error_at("master")
    after.press("create", master="local[2]")
    assert Application.objects.get(name="flights").revisions.get().spec["driver"] == "pod"
    assert "Driver: Pod in Kubernetes." in Page(signed_in, "/applications/flights/").text
    assert "· pod" in Page(signed_in, "/applications/").text


def test_a_mistake_is_told_at_its_field(signed_in: Client) -> None:
    form = Page(signed_in, "/new/application/", form="definition")
    after = form.press(
        "create", name="Flights!", memory="lots", env="PATH = /tmp", poison_limit="many"
    )
    assert "whole number" in after.error_at("poison_limit")
    after = after.press("create", poison_limit="3", base_delay_s="-1")
    assert after.error_at("base_delay_s")
    after = after.press("create", base_delay_s="5")
    assert "Flights!" in after.error_at("name")
    assert "lots" in after.error_at("memory")
    assert "PATH" in after.error_at("env")
    assert not Application.objects.exists()


def test_a_change_is_shown_then_saved(signed_in: Client, flights: Application) -> None:
    form = Page(signed_in, "/applications/flights/edit/", form="definition")
    shown = form.press("review", memory="2g")
    assert "Saving creates revision 2" in shown.text
    assert flights.revisions.count() == 1
    shown.press("save")
    assert flights.revisions.get(number=2).spec["memory"] == "2g"


def test_a_policy_set_back_to_its_default_is_saved(signed_in: Client, flights: Application) -> None:
    form = Page(signed_in, "/applications/flights/edit/", form="definition")
    form.press("review", poison_limit="7").press("save")
    form = Page(signed_in, "/applications/flights/edit/", form="definition")
    assert form.fields["poison_limit"] == "7"
    form.press("review", poison_limit="3").press("save")
    assert flights.revisions.get(number=3).spec["policy"]["poison_limit"] == 3


def test_a_secret_written_out_is_refused_at_its_field(
    signed_in: Client, flights: Application
) -> None:
    form = Page(signed_in, "/applications/flights/edit/", form="definition")
    after = form.press("review", env="API_TOKEN = hunter2hunter2")
    assert "API_TOKEN" in after.error_at("env")
    assert flights.revisions.count() == 1


def test_a_pool_is_made_changed_and_deleted(signed_in: Client, flights: Application) -> None:
    Page(signed_in, "/applications/flights/pools/new/", form="definition").press(
        name="light", weight="2", min_share="1"
    )
    pool = flights.pools.get(name="light")
    assert (pool.weight, pool.min_share) == (2, 1)
    edit = Page(signed_in, "/applications/flights/pools/light/edit/", form="definition")
    edit.press(weight="5")
    assert flights.pools.get(name="light").weight == 5
    signed_in.post("/applications/flights/pools/light/delete/")
    assert not flights.pools.exists()


@pytest.mark.parametrize(
    ("field", "value"), [("weight", "0"), ("min_share", "-1"), ("name", "default"), ("name", "")]
)
def test_a_pool_that_will_not_do_is_told(
    signed_in: Client, flights: Application, field: str, value: str
) -> None:
    form = Page(signed_in, "/applications/flights/pools/new/", form="definition")
    after = form.press(**({"name": "light"} | {field: value}))
    assert after.status == 422
    assert after.error_at(field)
    assert not flights.pools.exists()


@pytest.mark.sql("queries.selectors.definitions.definitions.application_definition")
def test_a_new_pool_does_not_overwrite_one_of_its_name(
    signed_in: Client, flights: Application, now: datetime
) -> None:
    catalog.save_pool(application=flights, spec={"name": "light", "weight": 9}, actor="a", now=now)
    form = Page(signed_in, "/applications/flights/pools/new/", form="definition")
    assert form.press(name="light", weight="1").error_at("name")
    assert flights.pools.get().weight == 9


def test_a_pool_in_use_is_not_deleted(
    signed_in: Client, flights: Application, now: datetime
) -> None:
    catalog.save_pool(application=flights, spec={"name": "light"}, actor="a", now=now)
    catalog.create_query(
        name="ticks",
        application="flights",
        spec={
            "kind": "sql",
            "sources": [{"name": "ticks", "format": "rate"}],
            "sql": "SELECT value FROM ticks",
            "sink": {"format": "noop"},
            "pool": "light",
        },
        actor="a",
        now=now,
    )
    answer = signed_in.post("/applications/flights/pools/light/delete/", follow=True)
    assert "ticks" in answer.content.decode()
    assert flights.pools.exists()


def test_an_application_is_deleted_by_its_name(signed_in: Client, flights: Application) -> None:
    page = Page(signed_in, "/applications/flights/delete/")
    page.press(typed="flight")
    assert Application.objects.get().archived_at is None
    page.press(typed="flights")
    assert Application.objects.get().archived_at is not None
