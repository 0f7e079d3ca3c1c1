"""Looks at the records of a batch: what is said before a probe is launched."""

from pathlib import Path
from shutil import copy2

import pytest
from django.utils import timezone

from queries.domain.states import OperationOutcome
from queries.models.definitions import Checkpoint
from queries.services.probes.inspections import begin_records
from queries.services.procedures.engine import advance
from queries.tasks import PROCEDURES
from tests.checkpoints.forms import write_checkpoint
from tests.launchers.in_memory import InMemoryLauncher
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (3, "Batch 3 read no new records: Spark ran it to advance the watermark."),
        (9, "The checkpoint does not contain batch 9."),
    ],
)
def test_a_batch_without_records_says_why_it_has_none(
    tmp_path: Path, batch: int, said: str
) -> None:
    query = Stage().query("delays")
    root = write_checkpoint(tmp_path / "delays", batches=range(3))
    copy2(root / "offsets/2", root / "offsets/3")
    Checkpoint.objects.update(location=f"file://{root}")
    now = timezone.now()
    operation = begin_records(query=query, batch=batch, actor="aude", now=now)
    launcher = InMemoryLauncher(clock=timezone.now)
    advance(operation.pk, procedures=PROCEDURES, launcher=launcher, now=now)
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.FAILED
    assert said in operation.detail.text
    assert not launcher.probes
