"""A module that was added to the code after the driver started is named as such."""

from pathlib import Path

from queries.domain.protocol import RunError
from queries.models.history import Failure
from tests.scenarios.stage import Stage

MISSING = RunError(
    "HEADGATE_USER_CODE",
    "ModuleNotFoundError",
    "function 'prices:define': No module named 'prices.rules'",
    "No module named 'prices.rules'",
)


def fail(stage: Stage, code: Path) -> str:
    stage.application("flights", python_path=[str(code)])
    stage.query("delays", "flights")
    stage.start("delays")
    stage.ready("flights")
    stage.fail("delays", MISSING)
    stage.fail("delays", MISSING)
    return str(stage.row("delays").phase_detail)


def test_a_module_that_is_in_the_code_by_now_asks_for_a_restart(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "rules.py").touch()
    assert "Restart the application" in fail(stage, tmp_path)
    assert Failure.objects.all()[0].error_type == "ModuleAddedLater"


def test_a_module_that_is_nowhere_is_the_users_code(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "prices").mkdir()
    said = fail(stage, tmp_path)
    assert "the application's packages field" in said
    assert "the same batch" not in said
