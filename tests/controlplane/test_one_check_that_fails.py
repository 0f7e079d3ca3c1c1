"""A check of the system's health that fails takes no other part away: each is tried."""

from typing import Any

import pytest
from django.utils import timezone

from queries.domain.system import PartState, ok
from queries.services.system import health as system
from queries.services.system import parts

pytestmark = pytest.mark.django_db

NAMES = [name for name, _, _ in system.checks(timezone.now())]


@pytest.mark.parametrize("rotten", NAMES)
def test_each_check_that_fails_is_named_and_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch, rotten: str
) -> None:
    def fails() -> Any:
        raise KeyError("rotten")

    def checks(now: Any) -> Any:
        return [
            (name, of_database, fails if name == rotten else lambda of=name: ok(of, "Well."))
            for name, of_database, _ in of_all
        ]

    of_all = system.checks(timezone.now())
    monkeypatch.setattr(system, "checks", checks)
    found = {part.name: part for part in system.look(timezone.now())}
    assert found.keys() == set(NAMES)
    assert found[rotten].state is PartState.PROBLEM
    assert found[rotten].sentence == "It could not be checked: KeyError: 'rotten'."
    others = {part.state for name, part in found.items() if name != rotten}
    assert others == ({PartState.OK, PartState.UNKNOWN} if rotten == "database" else {PartState.OK})


@pytest.mark.redis
@pytest.mark.parametrize("rotten", ["worker", "ticks", "ingester", "watcher"])
def test_a_process_that_cannot_be_judged_is_named_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, redis_server: str, settings: Any, rotten: str
) -> None:

    settings.REDIS_URL = redis_server

    def fails(*_: Any) -> Any:
        raise TypeError("can't compare offset-naive and offset-aware datetimes")

    monkeypatch.setattr(parts, f"{rotten}_part", fails)
    found = {part.name: part for part in parts.redis_and_processes(timezone.now())}
    assert found.keys() >= {"redis", "worker", "ticks", "ingester", "watcher"}
    assert found[rotten].sentence.startswith("It could not be checked: TypeError")
    assert found["redis"].state is PartState.OK
