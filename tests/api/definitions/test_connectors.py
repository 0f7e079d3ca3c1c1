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
        "tested_with": ["4.3"],
        "note": "",
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


def test_a_stranger_sees_nothing() -> None:
    assert APIClient().get("/api/v1/connectors/").status_code == 401
