"""A driver is given the secrets that its definitions name, and none that cannot be masked."""

from pathlib import Path
from typing import Any

import pytest

from queries.secret_references import SHORTEST, ReferenceMissing, References
from queries.services.supervision.assignments import driver_spec
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind


@pytest.fixture
def allowed(settings: Any) -> None:
    settings.SECRET_ENV_ALLOWLIST = ["OF_APPLICATION", "OF_QUERY", "OF_OLD", "OF_OTHERS", "UNUSED"]


@pytest.mark.guarantee("G-SECRET-2")
@pytest.mark.django_db
def test_a_driver_gets_the_variables_that_its_definitions_name(allowed: None) -> None:
    for name in ("OF_APPLICATION", "OF_QUERY", "OF_OLD", "UNUSED"):
        bind(f"env:{name}", "mine")
    bind("env:OF_OTHERS", "others")
    bind("env:OF_OLD", "others")
    stage = Stage()
    stage.application("mine", env={"TOKEN": "env:OF_APPLICATION"})
    stage.application("others", env={"TOKEN": "env:OF_OTHERS"})
    old = {"conf": {"spark.sql.x": "env:OF_OLD"}}
    stage.query("delays", "mine", **old)
    stage.up("delays", "mine")
    stage.revise("delays", conf={"spark.sql.x": "env:OF_QUERY"})
    stage.query("alerts", "others", **old)
    stage.up("alerts", "others")
    given = driver_spec(stage.driver("mine")).env_allowlist
    assert given == ("OF_APPLICATION", "OF_QUERY", "OF_OLD")  # it still runs revision 1
    assert driver_spec(stage.driver("others")).env_allowlist == ("OF_OLD", "OF_OTHERS")


def test_what_a_driver_was_not_given_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OF_OTHERS", "their-secret")
    references = References(env_allowlist=(), secrets_dir="")
    with pytest.raises(ReferenceMissing, match="restart the application"):
        references.resolve("env:OF_OTHERS")


@pytest.mark.guarantee("G-SECRET-4")
@pytest.mark.parametrize("kind", ["env", "file"])
@pytest.mark.parametrize("length", [0, 1, SHORTEST - 1])
def test_a_secret_that_is_too_short_to_be_masked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, length: int
) -> None:
    (tmp_path / "SHORT").write_text("x" * length + "\n")
    monkeypatch.setenv("SHORT", "x" * length)
    references = References(env_allowlist=("SHORT",), secrets_dir=str(tmp_path))
    with pytest.raises(ReferenceMissing, match=f"{kind}:SHORT has {length} characters"):
        references.resolve_all({"password": f"{kind}:SHORT"})


def test_one_of_eight_characters_is_taken(tmp_path: Path) -> None:
    (tmp_path / "LONG").write_text("x" * SHORTEST)
    references = References(env_allowlist=(), secrets_dir=str(tmp_path))
    assert references.resolve("file:LONG") == "x" * SHORTEST
