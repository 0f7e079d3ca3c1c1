"""One whole system for stories that leave nothing in it but what has names of their own.

It has no demo. A start costs some 20 seconds of processor time, so the files that share the system
run in the same one of pytest-xdist's processes. So do those that share a Kafka broker, or a driver.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

from tests import pieces
from tests.faults.small_disks import free, mounted
from tests.faults.system import PROGRAMS, System

#: Files whose stories share it.
SHARED_BY = (
    "tests/faults/test_async_progress_off.py",
    "tests/faults/test_blast_radius.py",
    "tests/faults/test_ci_story.py",
    "tests/spark/deploys/test_a_script_goes_back.py",
    "tests/spark/deploys/test_deploys.py",
    "tests/spark/deploys/test_new_code_and_packages.py",
    "tests/spark/scripts/test_a_query_with_another_name.py",
)
#: Files whose stories share the one on a small disk.
SHARED_ON_A_SMALL_DISK = (
    "tests/faults/test_full_disk.py",
    "tests/faults/test_full_disk_driver.py",
)
#: Settings that one of its stories runs with and all others without.
FOR_A_STORY = {"HEADGATE_FORCE_LISTENER_FALLBACK"}
#: Folders: each process with tests from one would start a broker, driver or cluster of its own.
FOLDERS = ("tests/kafka/", "tests/kubernetes/", "tests/spark/code/")
#: Files whose queries share a driver.
STREAMS = ("tests/spark/test_runtime_queries.py", "tests/spark/test_flights_streams.py")


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """A file in one process, and in the same one all that share a system, broker or driver."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        for folder in FOLDERS:
            if file.startswith(folder):
                return folder
        together = (SHARED_BY, SHARED_ON_A_SMALL_DISK, STREAMS)
        return next((files[0] for files in together if file in files), file)


@pytest.fixture(scope="session")
def one_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Return the session's system, with folders of code, data and wheels beside its home."""
    place = tmp_path_factory.mktemp("system")
    for name in ("code", "data", "wheels"):
        (place / name).mkdir()
    running = System(
        place / "home",
        pieces.free_port(),
        HEADGATE_DEMO="0",
        HEADGATE_CODE_ROOTS=str(place / "code"),
        HEADGATE_ALLOWED_PATHS=str(place / "data"),
        HEADGATE_CONNECTORS=str(pieces.kafka_connector().parent),
        UV_NO_INDEX="1",
        UV_FIND_LINKS=str(place / "wheels"),
    )
    try:
        running.up()
        yield running
    finally:
        running.close()


@pytest.fixture
def shared_system(one_system: System) -> Iterator[System]:
    """Return the session's system; at the end of a story nothing runs in it."""
    run_with(one_system)
    yield one_system
    one_system.rest()


def run_with(system: System, **settings: str) -> None:
    """Restart a shared system that runs with other settings than these beside its own."""
    kept = {name: value for name, value in system.environment.items() if name not in FOR_A_STORY}
    wanted = kept | settings
    if wanted != system.environment:
        system.interrupt()
        system.environment = wanted
        system.up()


@pytest.fixture(scope="session")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a small file system of its own, with nothing in it; its folder has room beside it."""
    with mounted(tmp_path_factory.mktemp("small") / "disk", 160) as folder:
        yield folder


@pytest.fixture(scope="session")
def system_on_a_small_disk(small_disk: Path) -> Iterator[System]:
    """Return a system whose home is on the small disk; code and data lie beside it."""
    place = small_disk.parent
    for name in ("code", "data"):
        (place / name).mkdir()
    running = System(
        small_disk / "home",
        pieces.free_port(),
        HEADGATE_DEMO="0",
        HEADGATE_CODE_ROOTS=str(place / "code"),
        HEADGATE_ALLOWED_PATHS=str(place / "data"),
        HEADGATE_DISK_WARNING_MB="40",
    )
    try:
        running.up()
        yield running
    finally:
        free(small_disk)
        running.close()


@pytest.fixture
def roomy_system(system_on_a_small_disk: System, small_disk: Path) -> Iterator[System]:
    """Return it with all of its programs; at the end of a story there is room, and nothing runs."""
    system = system_on_a_small_disk
    yield system
    free(small_disk)
    system.wait("all programs", lambda: system.living() == PROGRAMS | {"supervisord"})
    system.wait("readiness", system.ready)
    system.rest()


def code_of(system: System) -> Path:
    """Return the folder from which a shared system's drivers take code."""
    return Path(system.environment["HEADGATE_CODE_ROOTS"])


def data_of(system: System) -> Path:
    """Return the folder in which a shared system's sources and sinks lie."""
    return Path(system.environment["HEADGATE_ALLOWED_PATHS"])


def wheels_of(system: System) -> Path:
    """Return the folder in which a shared system's resolver finds packages."""
    return Path(system.environment["UV_FIND_LINKS"])
