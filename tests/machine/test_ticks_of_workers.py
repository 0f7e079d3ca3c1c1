"""The ticks of real workers: without messages, taken over from a killed leader, ended with it."""

import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from controlplane import signs_of_life
from controlplane.ticks import TICKS, TickReport, TickRun
from tests import conftest_tables
from tests.conftest_redis import ValkeyServer, valkey
from tests.machine.test_one_worker_per_host import LIMIT_S, Workers

__all__ = ["valkey"]

pytestmark = [pytest.mark.redis, pytest.mark.timeout(400)]
#: Ticks that come within half a minute.
SOON = [tick for tick in TICKS if tick.every_s <= 15]


@pytest.fixture
def workers(tmp_path: Path, pytestconfig: pytest.Config, valkey: ValkeyServer) -> Iterator[Workers]:
    home = tmp_path / "home"
    home.mkdir()
    found = Workers(home)
    found.environment["REDIS_URL"] = valkey.url
    try:
        if not conftest_tables.fetch(pytestconfig, home / "headgate.sqlite3"):
            found.migrate()
        yield found
    finally:
        found.close()


def test_ticks_run_by_themselves_and_those_of_a_killed_leader_are_taken_over(
    workers: Workers, valkey: ValkeyServer
) -> None:
    def runs(host: str) -> dict[str, TickRun]:
        with valkey.client() as client:
            found: list[TickReport] = signs_of_life.reports(client)
        return {name: run for one in found if one.host == host for name, run in one.runs.items()}

    def ended(host: str, *, led: bool, after: datetime | None = None) -> bool:
        seen = {name: run.ended for name, run in runs(host).items() if run.ended}
        names = [tick.name for tick in SOON if tick.by_leader is led]
        return all(name in seen and (after is None or seen[name] > after) for name in names)

    def start(host: str) -> None:
        workers.environment["HEADGATE_HOST"] = host
        workers.start()

    start("host-a")
    workers.wait("the first worker leads", lambda: ended("host-a", led=True))
    workers.wait("it serves its host", lambda: ended("host-a", led=False))
    start("host-b")
    workers.wait("the second serves its host", lambda: ended("host-b", led=False))
    assert not any(tick.name in runs("host-b") for tick in TICKS if tick.by_leader)

    first, second = workers.processes
    first.send_signal(signal.SIGKILL)
    first.wait(LIMIT_S)
    workers.wait("the second leads as well", lambda: ended("host-b", led=True))

    before = max(run.started for run in runs("host-b").values())
    workers.wait("it goes on", lambda: ended("host-b", led=True, after=before))
    second.send_signal(signal.SIGTERM)
    assert second.wait(LIMIT_S) == 0
