"""A worker that is not root has the mode accounts with the ambient capabilities of its unit."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate_server.places import ROOT as REPOSITORY
from queries.account_files import give
from queries.launchers.process.walls.accounts import NEEDED, Account
from tests import pieces

pytestmark = [
    *(pytest.mark.accounts, pytest.mark.open_python, pytest.mark.spark, pytest.mark.faults),
    pytest.mark.timeout(900),
]

SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def documented() -> list[str]:
    """Return the capabilities that the unit of docs/operations.md names."""
    text = (REPOSITORY / "docs/operations.md").read_text()
    [line] = re.findall(r"^AmbientCapabilities=(.+)$", text, flags=re.MULTILINE)
    return str(line).split()


def as_a_unit(worker: Account, capabilities: list[str], argv: list[str]) -> list[str]:
    """Return a command that runs `argv` as systemd does with AmbientCapabilities."""
    given = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities)])
    return [
        *("setpriv", f"--reuid={worker.uid}", f"--regid={worker.gid}", "--clear-groups"),
        *(f"--inh-caps={given}", f"--ambient-caps={given}", "--", *argv),
    ]


@pytest.fixture(scope="module")
def accounts() -> Iterator[tuple[Path, list[Account]]]:
    """Yield HEADGATE_HOME of a worker, and the accounts: the worker's, then those of drivers."""
    with pieces.reachable_folder() as place:
        place.chmod(0o711)
        with pieces.accounts_made(place, 3) as names:
            known = [Account.of(name) for name in names]
            home = place / "home"
            (home / "secrets").mkdir(parents=True, mode=0o700)
            (home / "secret_key").write_text("a key")
            (home / "secret_key").chmod(0o600)
            home.chmod(0o711)
            give(home, known[0].uid, known[0].gid)
            yield home, known


def _run(home: Path, known: list[Account], capabilities: list[str], *argv: str) -> str:
    done = subprocess.run(
        as_a_unit(known[0], capabilities, [sys.executable, "-P", *argv]),
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "HEADGATE_HOME": str(home),
            "HOME": known[0].home,
        },
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def seen(accounts: tuple[Path, list[Account]]) -> dict[str, Any]:
    """Return what such a worker has told of itself and of its drivers."""
    home, known = accounts
    names = [account.name for account in known[1:]]
    said = _run(
        *(home, known, documented()),
        *("-m", "tests.security.walls.ambient_worker", str(home), *names),
    )
    return dict(json.loads(said.splitlines()[-1]))


def test_it_has_the_capabilities_of_its_unit_and_no_others(
    seen: dict[str, Any], accounts: tuple[Path, list[Account]]
) -> None:
    assert seen["uid"] == accounts[1][0].uid
    assert {bit for bit in range(64) if seen["capabilities"] >> bit & 1} == set(NEEDED.values())


def _told(home: Path, known: list[Account], capabilities: list[str]) -> str:
    """Return what the proof of the walls says to a worker with these capabilities."""
    prove = (
        "import sys; from pathlib import Path; "
        "from queries.launchers.process.walls import proven; "
        "from queries.launchers.process.walls.accounts import Accounts; "
        "home = Path(sys.argv[1]); known = Accounts(tuple(sys.argv[2:]), home); "
        "print(proven.prove('accounts', home / 'drivers', known).told)"
    )
    names = [account.name for account in known[1:]]
    return _run(home, known, capabilities, "-c", prove, str(home), *names)


def test_its_proof_of_the_walls_succeeds(accounts: tuple[Path, list[Account]]) -> None:
    told = _told(*accounts, documented())
    assert told.startswith("Isolation of drivers: accounts. "), told


@pytest.mark.parametrize("lacking", documented())
def test_one_capability_less_is_named(accounts: tuple[Path, list[Account]], lacking: str) -> None:
    held = [name for name in documented() if name != lacking]
    assert f"the worker lacks {lacking}." in _told(*accounts, held)


def test_while_it_acts_as_an_account_it_has_no_more_rights(
    accounts: tuple[Path, list[Account]],
) -> None:
    """Its capabilities do not go by themselves, as root's do when a thread takes other rights."""
    act = (
        "import sys; from pathlib import Path; from queries.account_files import acting_as\n"
        "key = Path(sys.argv[1]) / 'secret_key'\n"
        "with acting_as(*map(int, sys.argv[2:])):\n"
        "    try: print(key.read_text())\n"
        "    except PermissionError: print('kept out')\n"
        "print(key.read_text())"
    )
    home, known = accounts
    ids = (str(known[1].uid), str(known[1].gid))
    assert _run(home, known, documented(), "-c", act, str(home), *ids) == "kept out\na key\n"


@pytest.mark.parametrize("life", ["stopped", "killed"])
def test_its_drivers_are_an_accounts_and_have_no_capability_left(
    seen: dict[str, Any], accounts: tuple[Path, list[Account]], life: str
) -> None:
    account = accounts[1][1]
    for process in seen[life]["processes"]:
        assert set(process["Uid"].split()) == {str(account.uid)}, process
        assert set(process["Gid"].split()) == {str(account.gid)}, process
        assert {name: int(process[name], 16) for name in SETS} == dict.fromkeys(SETS, 0)
        assert process["NoNewPrivs"] == "1"


@pytest.mark.parametrize("life", ["stopped", "killed"])
def test_it_sees_and_reads_what_they_are_and_write(seen: dict[str, Any], life: str) -> None:
    told = seen[life]
    assert told["found"], "the driver's processes are not known by their environment"
    assert told["holder"], "the holder of the checkpoint's lock is not seen"
    assert told["log"]
    assert told["spooled"] > 0


def test_a_driver_stops_when_it_asks(seen: dict[str, Any]) -> None:
    assert seen["stopped"]["exit"] == ["0", "0"]
    assert seen["stopped"]["last_seq"] > 0


def test_a_driver_without_a_shim_ends_when_it_kills(seen: dict[str, Any]) -> None:
    assert seen["killed"]["alive"] == [False, False]


def test_it_copies_and_removes_what_the_account_has_written(seen: dict[str, Any]) -> None:
    assert {"offsets", "commits", "metadata"} <= set(seen["snapshot"])
    assert seen["left"] == []


def test_web_and_ingester_read_it_with_one_capability(
    seen: dict[str, Any], accounts: tuple[Path, list[Account]]
) -> None:
    read = (
        "import sys; from pathlib import Path; "
        "from queries.launchers.process.launcher import LocalProcessLauncher; "
        "home = Path(sys.argv[1]); "
        "launcher = LocalProcessLauncher(home / 'drivers', home / 'code'); "
        "print(launcher.log_size('app', 2) > 0, len(list(launcher.spooled(2, 0))) > 0)"
    )
    home, known = accounts
    assert seen["killed"]["spooled"]  # by the driver whose folder is still there
    assert _run(home, known, ["CAP_DAC_OVERRIDE"], "-c", read, str(home)) == "True True\n"
    with pytest.raises(AssertionError, match="Permission"):
        _run(home, known, [], "-c", read, str(home))
