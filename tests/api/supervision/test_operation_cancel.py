"""Operations with steps over REST: their steps, what they were asked with, and their cancelling."""

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.states import OperationOutcome, Verb
from queries.models.history import Operation
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
)
from tests.scenarios.stage import Stage


def _done(turn: StepContext) -> StepResult:
    return DONE


@pytest.fixture
def rewind(stage: Stage) -> Operation:
    procedure = Procedure(
        Verb.REWIND, (ProcedureStep("Switch", _done),), limit=timedelta(minutes=5)
    )
    row = begin(
        procedure,
        query=stage.query("delays"),
        arguments={"batch": 40, "password": "hunter2hunter2"},
        actor="olga",
        now=timezone.now(),
    )
    row.result = {"new": "file:///checkpoints/delays-2"}
    row.steps[0]["detail"] = "waits"
    row.save()
    return row


def test_it_tells_steps_arguments_and_result_without_secrets(
    as_viewer: APIClient, rewind: Operation
) -> None:
    body = as_viewer.get(f"/api/v1/operations/{rewind.uuid}/").json()
    assert body["steps"] == [{"name": "Switch", "state": "TODO", "at": None, "detail": "waits"}]
    assert body["arguments"]["batch"] == 40
    assert "hunter2" not in str(body)
    assert body["result"] == {"new": "file:///checkpoints/delays-2"}
    assert (body["parent"], body["cancellable"]) == (None, True)
    assert body["links"]["cancel"] == f"/api/v1/operations/{rewind.uuid}/cancel/"


def test_it_is_cancelled_and_says_so(as_operator: APIClient, rewind: Operation) -> None:
    answer = as_operator.post(f"/api/v1/operations/{rewind.uuid}/cancel/")
    assert answer.status_code == 202
    assert answer.json()["outcome"] == OperationOutcome.CANCELLED
    assert answer.json()["cancellable"] is False
    again = as_operator.post(f"/api/v1/operations/{rewind.uuid}/cancel/")
    assert again.status_code == 409
    assert "CANCELLED" in again.json()["detail"]


def test_a_viewer_cancels_nothing(as_viewer: APIClient, rewind: Operation) -> None:
    assert as_viewer.post(f"/api/v1/operations/{rewind.uuid}/cancel/").status_code == 403
    rewind.refresh_from_db()
    assert rewind.outcome == ""


def test_a_plain_verb_cannot_be_cancelled_and_the_way_out_is_told(
    as_operator: APIClient, stage: Stage
) -> None:
    stage.query("delays")
    row = stage.start("delays")
    answer = as_operator.post(f"/api/v1/operations/{row.uuid}/cancel/")
    assert answer.status_code == 409
    assert answer.json()["way_out"] == "Request the opposite instead."
