"""A secret that is too short to be masked is refused where someone can still correct it."""

from pathlib import Path
from typing import Any

import pytest

from queries.domain.errors import Invalid
from queries.domain.failures.diagnosis import classify
from queries.models.grants import SecretBinding
from queries.models.history import Failure
from queries.runtime.failures.error_capture import from_python
from queries.secret_references import SHORTEST, References, SecretTooShort
from queries.services.definitions import catalog
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind

pytestmark = pytest.mark.django_db

SAID = (
    "has 3 characters, but a secret needs at least 8, or it could not be masked in texts. Give the "
    "system that the secret is for a longer one, store it in"
)


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.SECRETS_DIR = tmp_path
    settings.SECRET_ENV_ALLOWLIST = ["PIN"]
    monkeypatch.setenv("PIN", "123")
    (tmp_path / "pin").write_text("123\n")
    return tmp_path


@pytest.mark.guarantee("G-SECRET-4")
@pytest.mark.parametrize(
    ("secret", "where"),
    [("file:pin", "the secrets folder"), ("env:PIN", "the worker's environment")],
)
def test_it_is_not_bound_and_the_way_out_is_named(secret: str, where: str) -> None:
    with pytest.raises(Invalid) as refused:
        bind(secret, "orders")
    (problem,) = refused.value.problems
    assert (problem.field, problem.value) == ("secret", secret)
    assert f"{SAID} {where} under the same name, then try again." in problem.sentence()
    assert not SecretBinding.objects.exists()


def test_one_that_is_not_visible_here_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIN")
    for secret in ("env:PIN", "env:ELSEWHERE", "file:elsewhere"):
        bind(secret, "orders")
    assert SecretBinding.objects.count() == 3


def test_one_of_eight_characters_is_bound(folder: Path) -> None:
    (folder / "pin").write_text("1" * SHORTEST)
    bind("file:pin", "orders")
    assert SecretBinding.objects.count() == 1


def test_one_that_was_shortened_later_is_refused_when_a_definition_is_saved(
    stage: Stage, folder: Path
) -> None:
    stage.application("orders")
    (folder / "pin").write_text("1" * SHORTEST)
    bind("file:pin", "orders")
    (folder / "pin").write_text("123")
    spec = {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "rate"}],
        "sql": "SELECT * FROM ticks",
        "sink": {"format": "noop", "options": {"password": "file:pin"}},
    }
    with pytest.raises(Invalid, match="has 3 characters") as refused:
        catalog.create_query(name="x", spec=spec, application="orders", actor="a", now=stage.now)
    (problem,) = refused.value.problems
    assert problem.field == "sink.options.password"


def test_one_that_was_shortened_later_is_refused_at_the_next_start(folder: Path) -> None:
    stage = Stage(obliging=True)
    (folder / "pin").write_text("1" * SHORTEST)
    bind("file:pin", "orders")
    stage.application("orders")
    stage.query("delays", "orders", sink={"format": "noop", "options": {"password": "file:pin"}})
    (folder / "pin").write_text("123")
    stage.start("delays")
    stage.ready("orders")
    stage.wait(5)
    assert stage.phase("delays") == "FAILED"
    assert f"file:pin {SAID}" in Failure.objects.latest("pk").root_cause


def test_a_drivers_error_shows_the_whole_sentence_in_lists() -> None:
    references = References(env_allowlist=("PIN",), secrets_dir="")
    with pytest.raises(SecretTooShort) as refused:
        references.resolve("env:PIN")
    told = from_python(refused.value, references.mask)
    found = classify(
        error_class=told.error_class,
        type_name=told.type_name,
        root_cause=told.root_cause,
        message=told.message,
    )
    assert found.title.endswith(
        "env:PIN has 3 characters, but a secret needs at least 8, or it could not be masked in "
        "texts: store a longer one, then start again."
    )
    assert "for a longer one" in found.way_out
