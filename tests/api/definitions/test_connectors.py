"""CI asks which connectors stand ready before it deploys what needs them."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from queries.services.definitions import catalog


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.CONNECTORS_DIR = tmp_path / "connectors"
    return tmp_path / "connectors"


def test_there_may_be_none(as_viewer: APIClient) -> None:
    answer = as_viewer.get("/api/v1/connectors/")
    assert answer.json() == {"results": []}


def test_each_tells_its_jars_and_the_applications_that_name_it(
    as_viewer: APIClient, folder: Path, now: datetime
) -> None:
    (folder / "kafka").mkdir(parents=True)
    (folder / "kafka" / "kafka-clients-3.9.2.jar").write_bytes(b"x" * 5)
    (folder / ".being-copied").mkdir()
    (folder / ".being-copied" / "half.jar").touch()
    catalog.create_application(
        name="flights", spec={"connectors": ["kafka"]}, actor="aude", now=now
    )
    (found,) = as_viewer.get("/api/v1/connectors/").json()["results"]
    assert found == {
        "name": "kafka",
        "spark": "4.3",
        "ready": True,
        "folder": str(folder / "kafka"),
        "bytes": 5,
        "jars": [
            {
                "file": "kafka-clients-3.9.2.jar",
                "artifact": "kafka-clients",
                "version": "3.9.2",
                "bytes": 5,
            }
        ],
        "applications": ["flights"],
        "about": "Apache Kafka as source and sink",
        "sources": ["kafka"],
        "tables": [],
        "sinks": ["kafka"],
        "tested_with": ["3.5", "4.0", "4.1", "4.2", "4.3"],
        "note": "",
        "differing": [],
        "way_out": "",
    }

    (folder / "kafka" / "kafka-clients-3.9.2.jar").unlink()
    (found,) = as_viewer.get("/api/v1/connectors/").json()["results"]
    assert (found["ready"], found["way_out"]) == (False, "Install it with `make kafka`.")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (None, "It has no connector.toml"),
        ("sources = ['own']\ntested_with = ['4.1']", "It was not tested with Spark 4."),
        ("sources = ['own']", "not been tested with any version of Spark"),
        ("sources = [", "connector.toml is not TOML"),
        ("sources = ['own']\ntested_with = ['4.3']", ""),
    ],
)
def test_a_connector_that_was_not_tested_with_this_spark_says_so_and_is_not_refused(
    as_viewer: APIClient, folder: Path, now: datetime, text: str | None, note: str
) -> None:
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "own-1.0.jar").touch()
    if text is not None:
        (folder / "own" / "connector.toml").write_text(text)
    catalog.create_application(name="flights", spec={"connectors": ["own"]}, actor="a", now=now)
    (found,) = as_viewer.get("/api/v1/connectors/").json()["results"]
    assert note in found["note"]
    assert bool(note) == bool(found["note"])


@pytest.mark.django_db
def test_a_format_of_an_installed_connector_may_be_saved(folder: Path, now: datetime) -> None:
    (folder / "own").mkdir(parents=True)
    (folder / "own" / "own-1.0.jar").touch()
    (folder / "own" / "connector.toml").write_text("sources = ['own']")
    spec = {
        "kind": "sql",
        "sources": [{"name": "events", "format": "own"}],
        "sql": "SELECT * FROM events",
        "sink": {"format": "noop"},
    }
    application = {"connectors": ["own"]}
    made = catalog.create_query(
        name="q", spec=spec, application_spec=application, actor="a", now=now
    )
    assert made.revisions.get().spec["sources"][0]["format"] == "own"


def test_an_admin_removes_a_connector_but_installs_none(as_admin: APIClient, folder: Path) -> None:
    asked = {"name": "own", "spark": "4.2", "coordinates": ["org.example:own:1.0"]}
    assert as_admin.post("/api/v1/connectors/", asked, format="json").status_code == 405
    assert as_admin.post("/api/v1/sparks/", {"version": "4.1"}, format="json").status_code == 405
    (folder / "4.2" / "own").mkdir(parents=True)
    (folder / "4.2" / "own" / "own-1.0.jar").touch()
    assert as_admin.delete("/api/v1/connectors/4.2/own/").status_code == 204
    assert as_admin.delete("/api/v1/connectors/4.2/own/").status_code == 404
    assert as_admin.delete("/api/v1/connectors/5.0/own/").status_code == 404


def test_versions_of_spark_are_listed_and_those_in_use_stay(
    as_admin: APIClient, tmp_path: Path, settings: Any, now: datetime
) -> None:
    settings.SPARKS_DIR = tmp_path / "sparks"
    jars = tmp_path / "sparks" / "4.2" / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core.jar").write_bytes(b"x" * 7)
    (tmp_path / "sparks" / "4.2" / "pyspark-4.2.1.dist-info").mkdir()
    catalog.create_application(name="older", spec={"spark": "4.2"}, actor="aude", now=now)
    ours, installed, *_, missing = as_admin.get("/api/v1/sparks/").json()["results"]
    assert (ours["version"], ours["ours"], ours["way_out"]) == ("4.3", True, "")
    assert (installed["exact"], installed["bytes"]) == ("4.2.1", 7)
    assert installed["applications"] == ["older"]
    assert (missing["ready"], missing["way_out"]) == (
        False,
        "Install it with `make spark ARGS=3.5`.",
    )
    used = as_admin.delete("/api/v1/sparks/4.2/")
    assert used.status_code == 409
    assert "application older" in used.json()["detail"]


def test_a_stranger_sees_nothing() -> None:
    assert APIClient().get("/api/v1/connectors/").status_code == 401
