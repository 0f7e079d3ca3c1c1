"""What the storage JVM of a script's application is started with."""

import pytest

from queries.domain.states import DriverKind
from queries.services.supervision import decision_rows
from queries.services.supervision.assignments import driver_spec
from tests.scenarios.scripts.stage import ScriptStage

pytestmark = pytest.mark.django_db


def test_it_starts_without_the_scripts_code() -> None:
    stage = ScriptStage()
    stage.running("counts")
    row = decision_rows.create_driver(
        stage.job,
        stage.job.revisions.get(),
        launcher=stage.launcher,
        now=stage.now,
        kind=DriverKind.STORAGE,
    )
    assert driver_spec(row).script is None
