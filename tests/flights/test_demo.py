"""The demo is made once, through the services that a user's definitions go through."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from examples.flights import definitions, kafka_definitions, topics
from queries.domain.validation.application_rules import RESERVED_MODULES
from queries.models.applications import Application
from queries.models.definitions import Query, QueryRevision

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Settings) -> None:
    settings.HEADGATE_HOME = tmp_path
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"


def install() -> str:
    out = StringIO()
    call_command("install_demo", stdout=out)
    return out.getvalue()


def test_the_first_run_makes_four_queries_and_starts_three() -> None:
    said = install()
    desired = dict(Query.objects.values_list("name", "desired"))
    assert desired == {
        "flight-delays": "RUNNING",
        "long-delays": "RUNNING",
        "flights-by-hour": "RUNNING",
        "delay-recovery": "STOPPED",
    }
    assert all(name in said for name in desired)


def test_two_share_an_application_and_its_pools_and_two_have_their_own() -> None:
    install()
    shared = Application.objects.get(name="flights")
    assert set(shared.queries.values_list("name", flat=True)) == {"flight-delays", "long-delays"}
    assert list(shared.pools.values_list("name", "min_share")) == [("alerts", 1), ("delays", 0)]
    own = Application.objects.filter(own=True).values_list("name", flat=True)
    assert set(own) == {"flights-by-hour", "delay-recovery"}


def test_the_stopped_one_invites_people_to_start_it() -> None:
    install()
    revision = QueryRevision.objects.get(query__name="delay-recovery")
    assert "Start it" in revision.spec["description"]
    assert "failure history" in revision.spec["description"]


def test_folders_and_the_static_table_are_there_before_a_driver_looks(tmp_path: Path) -> None:
    install()
    assert (tmp_path / "demo" / "flights" / "in").is_dir()
    assert (tmp_path / "demo" / "flights" / "airlines" / "airlines.csv").is_file()
    assert (tmp_path / "demo" / "out").is_dir()


def test_a_second_run_does_nothing() -> None:
    install()
    before = list(Query.objects.values_list("name", "generation", "desired"))
    assert install() == ""
    assert list(Query.objects.values_list("name", "generation", "desired")) == before


def test_what_a_person_stopped_stays_stopped_and_what_was_deleted_stays_away() -> None:
    install()
    Query.objects.filter(name="flight-delays").update(desired="STOPPED", generation=2)
    deleted = Query.objects.filter(name="flights-by-hour")
    deleted.update(archived_at=datetime(2026, 3, 1, tzinfo=UTC), desired="STOPPED")
    install()
    assert Query.objects.get(name="flight-delays").desired == "STOPPED"
    assert Query.objects.filter(name="flights-by-hour").count() == 1
    assert deleted.get().desired == "STOPPED"


def test_a_first_run_that_was_cut_short_is_completed_by_the_next() -> None:
    install()
    Query.objects.filter(name="long-delays").update(desired="STOPPED", generation=0)
    install()
    assert Query.objects.get(name="long-delays").desired == "RUNNING"


def test_what_is_refused_is_named_and_the_rest_is_made(settings: Settings) -> None:
    settings.CODE_ROOTS = []
    with pytest.raises(CommandError, match=r"flights-by-hour: .*python_path"):
        install()
    assert set(Query.objects.values_list("name", flat=True)) == {
        "flight-delays",
        "long-delays",
        "delay-recovery",
    }


def test_the_code_root_holds_no_module_that_would_stand_in_the_drivers_way() -> None:
    modules = {path.stem for path in definitions.CODE.glob("*.py")}
    assert modules == {"flights_by_hour", "planes_of_flights"}
    assert not modules & RESERVED_MODULES


def test_each_query_on_kafka_writes_to_the_topic_that_the_demo_creates_for_it(
    tmp_path: Path,
) -> None:
    plain = kafka_definitions.queries("here:9092")
    queries = [*plain, *kafka_definitions.async_queries("here:9092", tmp_path)]
    written = [query.spec["sink"]["options"]["topic"] for query in queries]
    assert sorted([*written, topics.FLIGHTS]) == sorted(topics.ALL)
