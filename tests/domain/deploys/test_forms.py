"""What is asked of a deploy, and what is refused of it."""

from typing import Any

import pytest

from queries.domain.deploys.request import DeployStage, OnFailure, parse_deploy
from queries.domain.errors import Invalid

SET: dict[str, Any] = {"owner": "repo", "manifests": []}


def test_what_is_left_out_has_its_default() -> None:
    form = parse_deploy({"apply": SET})
    assert (form.waves.size, form.on_failure, form.preflight) == (5, OnFailure.ROLLBACK, False)
    assert (form.good.first_commit, form.good.batches, form.good.deadline_minutes) == (True, 0, 10)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "apply"),
        ({"apply": SET, "wave": 1}, "wave"),
        ({"apply": SET, "waves": {"size": 0}}, "waves.size"),
        ({"apply": SET, "good": {"minutes": 10}}, "good.minutes"),
        ({"apply": SET, "good": {"first_commit": False}}, "good"),
        ({"apply": SET, "on_failure": "pray"}, "on_failure"),
        ({"apply": {**SET, "dry_run": True}}, "apply.dry_run"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_deploy(body)
    assert [one.field for one in caught.value.problems] == [field]


def test_what_its_files_no_longer_hold_may_be_stopped_at_its_end() -> None:
    held = {**SET, "prune": True, "prune_running": True}
    assert parse_deploy({"apply": held}).apply["prune_running"] is True


def test_each_stage_is_described_for_pages() -> None:
    assert all(stage.description for stage in DeployStage)
