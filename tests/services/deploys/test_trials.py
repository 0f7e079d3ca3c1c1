"""What a deploy tries before its first wave, when it changes what queries import."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from queries.models.deploys import Deploy
from queries.models.history import Operation
from queries.services.code import preparing
from tests.scenarios.deploys.way import Way, ada
from tests.scenarios.stage import Stage
from tests.services.code.wheels import wheel

pytestmark = pytest.mark.django_db


@pytest.fixture
def way(stage: Stage, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Two queries run in one driver; the index has one wheel."""
    settings.PACKAGES_DIR, settings.CODE_DIR = tmp_path / "packages", tmp_path / "code"
    wheel(tmp_path / "shelf", "hgcolours", "2.1", {"hgcolours.py": "RED = 1\n"})
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "shelf"))
    stage.application("flights")
    for name in ("a", "b"):
        stage.query(name, "flights")
        stage.up(name, "flights")
    ada()
    return Way(stage)


def packages(way: Way, text: str, **spec: Any) -> Deploy:
    """Ask for a deploy of these packages; let the worker install what it can."""
    manifest = {
        "apiVersion": "headgate/v1",
        "kind": "Application",
        "metadata": {"name": "flights"},
        "spec": {"master": "local[2]", "memory": "1g", "packages": text, **spec},
    }
    way.ask(manifest, preflight=True)
    way.work()
    preparing.wait(60)
    return way.work()


def tried() -> set[str]:
    rows = Operation.objects.filter(verb="preflight").select_related("query")
    return {row.query.name for row in rows if row.query is not None}


def test_one_query_is_tried_with_packages_that_are_not_written_yet(way: Way, stage: Stage) -> None:
    deploy = packages(way, "hgcolours")
    assert deploy.stage == "preflight"
    assert tried() == {"a"}
    [probe] = stage.launcher.probes.values()
    assert list(Path(probe.spec.packages).glob("hgcolours.py")) != []
    flights = stage.row("a").application
    assert flights.revisions.count() == 1, "nothing is written yet"
    assert way.probe().stage != "preflight"
    assert flights.revisions.latest("number").spec["packages"] == "hgcolours"


def test_a_resolvers_no_ends_it_before_anything_is_written(way: Way, stage: Stage) -> None:
    running = stage.run("a").driver.epoch
    deploy = packages(way, "hgcolours==9.9")
    assert deploy.state == "FAILED"
    assert "there is no version of hgcolours==9.9" in str(deploy.reason)
    assert stage.row("a").application.revisions.count() == 1
    assert stage.run("a").driver.epoch == running


def test_other_changes_of_an_application_try_only_what_changes(way: Way) -> None:
    deploy = packages(way, "", memory="2g")
    assert tried() == set()
    assert deploy.stage != "preflight"


def ask_of_a_careful_application(way: Way, stage: Stage, **changes: Any) -> None:
    """Ask for changes of an application that requires preflights."""
    newest = stage.row("a").application.revisions.latest("number")
    newest.spec = {**newest.spec, "require_preflight": True}
    newest.save()
    way.ask(
        {
            "apiVersion": "headgate/v1",
            "kind": "Application",
            "metadata": {"name": "flights"},
            "spec": {**newest.spec, **changes},
        }
    )


def test_an_application_that_requires_preflights_has_its_new_packages_tried(
    way: Way, stage: Stage
) -> None:
    ask_of_a_careful_application(way, stage, packages="hgcolours")
    assert way.now().preflight
    assert way.now().stage == "preflight"


def test_an_application_that_requires_preflights_has_another_spark_tried(
    way: Way, stage: Stage, settings: Settings, tmp_path: Path
) -> None:
    settings.SPARKS_DIR = tmp_path / "sparks"
    (tmp_path / "sparks" / "4.2" / "pyspark").mkdir(parents=True)
    ask_of_a_careful_application(way, stage, spark="4.2")
    assert way.now().preflight
    assert way.now().stage == "preflight"
