"""A manifest in git may keep EMR's `s3://`: it is stored as `s3a://`, and nothing drifts."""

from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from queries.models.definitions import Query
from tests.api.manifests.conftest import Send, application, outcomes, query

pytestmark = pytest.mark.django_db

FILES: dict[str, Any] = {
    "sources": [
        {
            "name": "flights",
            "format": "json",
            "schema": "carrier STRING",
            "options": {"path": "s3://lake/in", "sourceArchiveDir": "s3://lake/done"},
        }
    ],
    "tables": [{"name": "carriers", "format": "parquet", "options": {"path": "s3://lake/t"}}],
    "sql": "SELECT *, :mark AS mark FROM flights JOIN carriers USING (carrier)",
    "sink": {"format": "parquet", "options": {"path": "s3://lake/out"}},
    "params": {"mark": "s3://not-a-path"},
    "checkpoint": "s3://lake/checkpoints/delays",
}
NOTED = [
    f"spec.{field} is stored with s3a:// instead of s3://, which only EMR knows."
    for field in (
        "sources.0.options.path",
        "sources.0.options.sourceArchiveDir",
        "tables.0.options.path",
        "sink.options.path",
    )
]


@pytest.fixture(autouse=True)
def lake(settings: Settings, tmp_path: Path) -> None:
    """Allow the bucket, and install what reads it."""
    settings.ALLOWED_PATHS = ["/", "s3a://lake"]
    settings.CONNECTORS_DIR = tmp_path
    installed = tmp_path / "s3"
    installed.mkdir()
    (installed / "hadoop-aws.jar").touch()


def manifests() -> list[dict[str, Any]]:
    conf = {"spark.sql.catalog.lake.warehouse": "s3://lake/warehouse"}
    return [
        application("lake", connectors=["s3"], conf=conf),
        query("delays", application="lake", spec=FILES),
    ]


def test_a_set_is_stored_in_hadoops_spelling_and_says_so(send: Send) -> None:
    tried = send(*manifests(), dry_run=True)
    answer = send(*manifests())
    for found in (tried, answer):
        notes = {one["name"]: one["notes"] for one in found["objects"]}
        conf = "spec.conf.spark.sql.catalog.lake.warehouse"
        assert notes["lake"] == [
            f"{conf} is stored with s3a:// instead of s3://, which only EMR knows."
        ]
        assert sorted(notes["delays"]) == sorted(
            [
                *NOTED,
                "spec.checkpoint is stored with s3a:// instead of s3://, which only EMR knows.",
            ]
        )
    row = Query.objects.get()
    spec = row.revisions.get().spec
    assert "s3://" not in str({**spec, "params": {}})
    assert spec["params"] == FILES["params"]
    assert row.checkpoints.get().location == "s3a://lake/checkpoints/delays"
    conf = row.application.revisions.get().spec["conf"]
    assert conf == {"spark.sql.catalog.lake.warehouse": "s3a://lake/warehouse"}


def test_the_same_manifest_changes_nothing_and_is_no_drift(
    send: Send, as_author: APIClient
) -> None:
    send(*manifests())
    for sent in (send(*manifests(), dry_run=True), send(*manifests())):
        assert set(outcomes(sent).values()) == {"unchanged"}
        assert [one["changes"] for one in sent["objects"]] == [[], []]
        assert [one["drift"] for one in sent["objects"]] == [None, None]
    owner = as_author.get("/api/v1/queries/delays/owner/").json()
    assert owner["drift"] is None
    assert Query.objects.get().revisions.count() == 1


def test_a_single_save_says_so_too_and_a_second_one_finds_its_query(as_author: APIClient) -> None:
    spec = dict(query("delays", spec=FILES)["spec"])
    checkpoint = spec.pop("checkpoint")
    own = {"connectors": ["s3"], "conf": {"spark.sql.warehouse.dir": "s3://lake/w"}}
    sent = {
        "name": "delays",
        "spec": spec,
        "checkpoint": checkpoint,
        "application_spec": own,
    }
    url = "/api/v1/queries/"
    tried = as_author.post(f"{url}?dry_run=true", sent, format="json")
    made = as_author.post(url, sent, format="json")
    assert (tried.status_code, made.status_code) == (200, 201), made.json()["problems"]
    fields = {note.partition(" ")[0] for note in made.json()["notes"]}
    assert fields == {
        *(note.partition(" ")[0] for note in NOTED),
        "checkpoint",
        "application_spec.conf.spark.sql.warehouse.dir",
    }
    assert len(tried.json()["notes"]) == len(made.json()["notes"])
    assert made.json()["spec"]["sink"]["options"] == {"path": "s3a://lake/out"}
    again = as_author.post(url, sent, format="json")
    assert again.status_code == 200, again.json()
    assert Query.objects.count() == 1
    headers = {"If-Match": made.json()["etag"]}
    put = {"spec": spec, "checkpoint": checkpoint}
    kept = as_author.put(f"{url}delays/", put, format="json", headers=headers)
    assert kept.status_code == 200, kept.json()
    assert kept.json()["revision"] == 1
    assert as_author.get(f"{url}delays/").json()["notes"] == []
