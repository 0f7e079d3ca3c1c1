"""A script that fails is told, though it may have no query yet that could be."""

import pytest

from queries.domain.alerts.forms import IncidentKind
from queries.selectors.alerts.troubles import _driver_deaths
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import BROKEN_PIPE, NO_SUCH_SOURCE

pytestmark = pytest.mark.django_db


def test_a_script_that_is_held_is_a_trouble_of_its_application() -> None:
    stage = ScriptStage()
    stage.running()
    assert list(_driver_deaths()) == []
    stage.fail_script(NO_SUCH_SOURCE)
    [trouble] = _driver_deaths()
    assert trouble.kind is IncidentKind.FAILED
    assert trouble.title == "job: the script has failed and is not restarted"
    assert trouble.detail
    stage.stop_script()
    assert list(_driver_deaths()) == []


def test_one_failure_that_is_tried_again_is_none() -> None:
    stage = ScriptStage()
    stage.running()
    stage.fail_script(BROKEN_PIPE)
    assert list(_driver_deaths()) == []


def test_a_script_that_asks_which_query_is_which_is_a_trouble_of_its_application() -> None:
    stage = ScriptStage()
    stage.running("counts")
    stage.launcher.asks("job", "new", stage.row("job/counts").pk, asked="")
    stage.look("job")
    [trouble] = _driver_deaths()
    assert trouble.kind == IncidentKind.QUERY_IDENTITY
    assert trouble.title == "job: the script is waiting for an author's answer"
