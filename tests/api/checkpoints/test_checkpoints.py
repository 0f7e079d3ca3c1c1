"""A query's checkpoint over REST: batches, snapshots, and previews before acts."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.utils import timezone
from rest_framework.test import APIClient

from queries.models.checkpoints import Snapshot
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.selectors.hosts import mirror_of
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import PROCEDURES
from tests.checkpoints.forms import tree, write_checkpoint
from tests.scenarios.stage import Stage

ADDRESS = "/api/v1/queries/delays"


@pytest.fixture
def root(stage: Stage, tmp_path: Path, settings: LazySettings) -> Path:
    stage.now = timezone.now()
    settings.CHECKPOINTS_DIR = tmp_path / "cps"
    root = tmp_path / "cps" / "delays"
    query = stage.query("delays")
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    return write_checkpoint(root, batches=range(12), source="kafka", in_flight=True)


def _work(stage: Stage) -> None:
    # Steps note the time of the clock on the wall, which a slow machine's story falls behind.
    stage.now = max(stage.now, timezone.now())
    for _ in range(4):
        for pk in due_operations(now=timezone.now()):
            advance(pk, procedures=PROCEDURES, launcher=stage.launcher, now=timezone.now())
        stage.wait(1)


def test_batches_are_paged_newest_first(as_viewer: APIClient, root: Path) -> None:
    first = as_viewer.get(f"{ADDRESS}/batches/?limit=5").json()
    assert [row["batch"] for row in first["results"]] == [12, 11, 10, 9, 8]
    assert [row["state"] for row in first["results"][:2]] == ["in flight", "committed"]
    assert first["results"][1]["ranges"] == [
        {
            "source": "0",
            "topic": "flights",
            "partition": 0,
            "start": 110,
            "end": 120,
            "records": 10,
        }
    ]
    second = as_viewer.get(first["next"]).json()
    assert [row["batch"] for row in second["results"]] == [7, 6, 5, 4, 3]


def test_a_snapshot_is_taken_listed_pinned_and_removed(
    as_operator: APIClient, stage: Stage, root: Path
) -> None:
    accepted = as_operator.post(f"{ADDRESS}/snapshots/", {"reason": "CI"}, format="json")
    assert accepted.status_code == 202
    _work(stage)
    operation = as_operator.get(accepted["Location"]).json()
    assert operation["outcome"] == "DONE"
    assert operation["result"]["batch"] == 11
    (row,) = as_operator.get(f"{ADDRESS}/snapshots/").json()["results"]
    assert (row["batch"], row["reason"], row["pinned"]) == (11, "CI", False)
    one = f"{ADDRESS}/snapshots/{row['id']}/"
    assert as_operator.patch(one, {"pinned": True}, format="json").json()["pinned"]
    assert as_operator.delete(one).status_code == 409
    as_operator.patch(one, {"pinned": False}, format="json")
    assert as_operator.delete(one).status_code == 204
    assert as_operator.get(one).status_code == 404
    assert Snapshot.objects.get().removed_at is not None


def test_a_dry_run_says_what_a_rewind_repeats_and_changes_nothing(
    as_author: APIClient, stage: Stage, root: Path
) -> None:
    before = tree(root)
    told = as_author.post(f"{ADDRESS}/rewind/", {"batch": 7, "dry_run": True}, format="json")
    assert told.status_code == 200
    found = told.json()
    assert (found["refusal"], found["newest"], found["batches"]) == ("", 11, 5)
    assert found["records"] == 50
    assert found["moved"][0]["before"] == 130
    assert found["moved"][0]["after"] == 80
    assert not Operation.objects.exists()
    assert as_author.post(f"{ADDRESS}/rewind/", {"batch": 7}, format="json").status_code == 202
    _work(stage)
    assert ".r7-" in Checkpoint.objects.get(query__name="delays", retired_at=None).location
    assert tree(root) == before


def test_a_rewind_out_of_reach_is_a_conflict_with_what_there_is(
    as_author: APIClient, root: Path
) -> None:
    refused = as_author.post(f"{ADDRESS}/rewind/", {"batch": 40}, format="json")
    assert refused.status_code == 409
    assert refused.json()["way_out"] == "It contains batches 0 to 11."
    told = as_author.post(f"{ADDRESS}/rewind/", {"batch": 40, "dry_run": True}, format="json")
    assert "is not in the checkpoint" in told.json()["refusal"]


def test_a_reset_to_offsets_moves_the_partitions_that_are_named(
    as_author: APIClient, stage: Stage, root: Path
) -> None:
    wanted = {"to": "offsets", "offsets": {"flights": {"0": 40}}}
    told = as_author.post(f"{ADDRESS}/reset/", {**wanted, "dry_run": True}, format="json").json()
    assert told["refusal"] == ""
    assert told["records"] == 80  # the other partition goes on after the newest commit
    assert as_author.post(f"{ADDRESS}/reset/", wanted, format="json").status_code == 202
    _work(stage)
    place = Checkpoint.objects.get(query__name="delays", retired_at=None).location[7:]
    text = (Path(place) / "offsets" / "12").read_text()
    assert text.split("\n")[2] == '{"flights":{"0":40}}'


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"to": "offsets", "offsets": {"flights": 3}}, "offsets"),
        ({"to": "offsets", "offsets": {"other": {"0": 3}}}, "offsets.other.0"),
        ({"to": "offsets"}, "offsets"),
        ({"to": "time"}, "at"),
        ({"to": "somewhere"}, "to"),
    ],
)
def test_a_reset_to_nonsense_names_the_field(
    as_author: APIClient, root: Path, body: dict[str, object], field: str
) -> None:
    refused = as_author.post(f"{ADDRESS}/reset/", body, format="json")
    assert refused.status_code == 422
    assert refused.json()["problems"][0]["field"] == field
    assert not Operation.objects.exists()


def test_a_clone_is_a_query_of_its_own(as_author: APIClient, stage: Stage, root: Path) -> None:
    refused = as_author.post(f"{ADDRESS}/clone/", {"name": "two"}, format="json")
    assert refused.status_code == 422
    accepted = as_author.post(
        f"{ADDRESS}/clone/", {"name": "two", "sink": {"format": "console"}}, format="json"
    )
    assert accepted.status_code == 202
    _work(stage)
    assert as_author.get(accepted["Location"]).json()["result"]["clone"] == "two"
    assert Query.objects.get(name="two").revisions.get().spec["sink"]["format"] == "console"


def test_batches_of_a_mirror_have_the_time_when_it_was_read(
    as_viewer: APIClient, root: Path, settings: LazySettings, tmp_path: Path
) -> None:
    settings.MIRRORS_DIR = tmp_path / "mirrors"
    Checkpoint.objects.update(location="s3a://bucket/delays")
    mirror, at = mirror_of("s3a://bucket/delays"), timezone.now() - timedelta(minutes=9)
    mirror.note("", read_at=at)
    shutil.copytree(root, mirror.checkpoint)
    mirrored = as_viewer.get(f"{ADDRESS}/batches/?limit=1").json()["results"][0]
    assert datetime.fromisoformat(mirrored["read_at"]) == at


def test_a_checkpoint_elsewhere_is_refused_with_the_reason(
    as_author: APIClient, root: Path
) -> None:
    Checkpoint.objects.update(location="s3a://bucket/delays")
    assert as_author.get(f"{ADDRESS}/batches/").status_code == 409
    assert as_author.post(f"{ADDRESS}/rewind/", {"batch": 3}, format="json").status_code == 409
