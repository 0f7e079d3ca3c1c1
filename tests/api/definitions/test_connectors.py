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
        "way_out": "",
    }

    (folder / "kafka" / "kafka-clients-3.9.2.jar").unlink()
    (found,) = as_viewer.get("/api/v1/connectors/").json()["results"]
    assert (found["ready"], found["way_out"]) == (False, "Get it with `make kafka`.")


def test_a_stranger_sees_nothing() -> None:
    assert APIClient().get("/api/v1/connectors/").status_code == 401
