"""Which account an application gets, what that account is given, and what a host lacks for it."""

# State files are zips; an account that cannot read this Python cannot import what names them.
import encodings.cp437  # noqa: F401
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_ground.files import NotPlain
from headgate_server.places import ROOT as REPOSITORY
from queries.account_files import acting_as, acting_in, give, is_ours
from queries.checkpoints.file_sink import FileSink
from queries.checkpoints.snapshot import remove, snapshot
from queries.domain.checkpoints.logs import Unreadable
from queries.domain.protocol import SPEC, Assignment, DriverSpec
from queries.domain.walls import Choice, Mode
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.launchers.process.walls import account_rights, proven, trial
from queries.launchers.process.walls.accounts import Account, Accounts
from tests import pieces
from tests.checkpoints.forms import write_checkpoint
from tests.launchers.test_contract import _spec

pytestmark = pytest.mark.accounts


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with (
        pieces.reachable_folder() as homes,
        pieces.accounts_made(giving_way(homes), 2) as names,
    ):
        yield names


def giving_way(folder: Path) -> Path:
    """Let all accounts through a folder."""
    folder.chmod(0o711)
    return folder


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield HEADGATE_HOME as it is laid out, with a file that is nobody else's."""
    with pieces.reachable_folder() as home:
        (home / "secret_key").write_text("a key")
        (home / "secret_key").chmod(0o600)
        (home / "checkpoints").mkdir(mode=0o700)
        yield home


@pytest.fixture
def accounts(home: Path, names: list[str], monkeypatch: pytest.MonkeyPatch) -> Accounts:
    found = Accounts(tuple(names), home)
    monkeypatch.setattr(proven, "accounts", lambda: found)
    return found


@pytest.fixture
def account(accounts: Accounts) -> Account:
    return accounts.of("flights")


# --- which account ------------------------------------------------------------------------


def test_an_application_keeps_its_account_and_shares_it_with_no_other(
    accounts: Accounts, home: Path, names: list[str]
) -> None:
    first, second = accounts.of("flights"), accounts.of("delays")
    assert [first.name, second.name] == names
    after_a_restart = Accounts((f"{names[0][:-1]}*",), home)
    assert [after_a_restart.of(one) for one in ("delays", "flights")] == [second, first]


def test_without_a_free_account_a_start_is_refused_and_says_what_to_do(
    accounts: Accounts, names: list[str], home: Path
) -> None:
    accounts.of("flights")
    accounts.of("delays")
    with pytest.raises(
        LaunchRefused, match=r"alerts cannot be started: no account .* \(2 accounts\) is free"
    ) as refused:
        accounts.of("alerts")
    assert "Create another one with useradd" in str(refused.value)
    with pytest.raises(LaunchRefused, match=f"the account {names[1]}, which is no longer in"):
        Accounts((names[0],), home).of("delays")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ((), "contains no existing account"),
        (("nobody-of-this-name-*",), "contains no existing account"),
        (("nobody-of-this-name",), "the account nobody-of-this-name does not exist"),
        (("root",), "the account root is the worker's own"),
        (("nobody",), "the account nobody has no home directory of its own"),
    ],
)
def test_accounts_that_do_not_fit_are_named(home: Path, named: tuple[str, ...], said: str) -> None:
    choice = proven.prove(Mode.ACCOUNTS, home / "drivers", Accounts(named, home))
    assert choice.refused
    assert said in choice.told


def test_the_same_account_twice_is_no_second_account(home: Path, names: list[str]) -> None:
    twin = f"{names[0]}-twin"
    uid = str(Account.of(names[0]).uid)
    subprocess.run(["useradd", "--non-unique", "--uid", uid, twin], check=True)
    try:
        choice = proven.prove(Mode.ACCOUNTS, home / "drivers", Accounts((names[0], twin), home))
        assert f"the accounts {names[0]} and {twin} have the same uid" in choice.told
    finally:
        subprocess.run(["userdel", "--force", twin], check=False)


# --- the proof ----------------------------------------------------------------------------


@pytest.mark.open_python
def test_accounts_are_proven(home: Path, accounts: Accounts) -> None:
    assert proven.prove(Mode.ACCOUNTS, home / "drivers", accounts) == Choice(
        Mode.ACCOUNTS, Mode.ACCOUNTS
    )
    assert list((home / "drivers").iterdir()) == []


@pytest.mark.open_python
def test_a_file_of_the_control_plane_that_accounts_can_read_is_a_hole(
    home: Path, accounts: Accounts
) -> None:
    (home / "secret_key").chmod(0o644)
    choice = proven.prove(Mode.ACCOUNTS, home / "drivers", accounts)
    assert choice.refused
    assert f"not stopped from reading a file of the control plane: {home}/secret_key" in choice.told


@pytest.mark.open_python
def test_a_file_of_the_kernel_that_accounts_can_write_is_a_hole(
    home: Path, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's triggers of pressure, which every account may open, stand in for one."""
    theirs = repr(trial.EVERYBODYS)
    assert theirs in trial._ATTEMPT
    monkeypatch.setattr(trial, "_ATTEMPT", trial._ATTEMPT.replace(theirs, "'/none'"))
    said = proven.prove(Mode.ACCOUNTS, home / "drivers", accounts).told
    assert "not stopped from opening a kernel file for writing: /proc/" in said


@pytest.mark.open_python
def test_kept_capabilities_are_a_hole(
    home: Path, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Account.command

    def keeping(self: Account, argv: list[str]) -> list[str]:
        return [part for part in whole(self, argv) if part != "--bounding-set=-all"]

    monkeypatch.setattr(Account, "command", keeping)
    assert (
        "it still has capabilities" in proven.prove(Mode.ACCOUNTS, home / "drivers", accounts).told
    )


@pytest.mark.open_python
def test_a_folder_that_cannot_be_traversed_is_named(names: list[str]) -> None:
    with pieces.reachable_folder() as closed:
        home = closed / "home"
        home.mkdir()
        choice = proven.prove(Mode.ACCOUNTS, home / "drivers", Accounts(tuple(names), home))
        assert f"cannot enter {closed}; to allow it, run chmod o+x {closed}." in choice.told


def test_a_capability_that_is_missing_is_named(home: Path, names: list[str]) -> None:
    prove = (
        "import sys; from pathlib import Path; "
        "from queries.launchers.process.walls import proven; "
        "from queries.launchers.process.walls.accounts import Accounts; "
        "home = Path(sys.argv[1]); known = Accounts(tuple(sys.argv[2:]), home); "
        "print(proven.prove('accounts', home / 'drivers', known).told)"
    )
    done = subprocess.run(
        [
            *("setpriv", "--bounding-set=-kill,-chown", "--inh-caps=-all", "--"),
            *(sys.executable, "-P", "-c", prove, str(home), *names),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "the worker lacks CAP_CHOWN, CAP_KILL." in done.stdout, done.stdout + done.stderr


# --- what an account is given -------------------------------------------------------------


def test_a_driver_reads_what_directs_it_and_no_other_account_does(
    home: Path, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = LocalProcessLauncher(
        home / "drivers",
        home / "code",
        walls=lambda: Choice(Mode.ACCOUNTS, Mode.ACCOUNTS),
        accounts=accounts,
    )
    monkeypatch.setattr(launcher, "_spawn", lambda *_: None)
    (home / "secrets").mkdir(mode=0o700)
    (home / "secrets/ours").write_text("our-password")
    spec = replace(_spec(1), env={"PASSWORD": "file:ours"})
    launcher.launch(spec, Assignment(1, 1), "<allocations/>")
    control = DriverFolder.of(launcher.directory("flights", 1)).control
    told = DriverSpec.loads((control / SPEC).read_text())
    mine, other = accounts.of("flights"), accounts.of("delays")
    assert (told.walls, told.account) == (Mode.ACCOUNTS, mine.name)
    files = ["spec.json", "assignment.json", "fairscheduler.xml", "secrets/ours"]
    paths = [*(control / file for file in files), control.parent.parent / "control/current.json"]
    for path in paths:
        with acting_as(mine.uid, mine.gid):
            assert path.read_text()
            with pytest.raises(PermissionError):
                path.open("a")
            with pytest.raises(PermissionError):
                path.rename(path.with_name("gone"))
        with acting_as(other.uid, other.gid), pytest.raises(PermissionError):
            path.read_text()
    with acting_as(other.uid, other.gid), pytest.raises(PermissionError):
        control.stat()  # not even what there is


def test_code_is_read_by_accounts_and_the_folder_of_all_code_is_not(
    home: Path, accounts: Accounts, account: Account
) -> None:
    (home / "users").mkdir(mode=0o700)
    (home / "users/flights.py").write_text("AIRLINE = 'AA'")
    (home / "users/flights.py").chmod(0o600)
    launcher = LocalProcessLauncher(home / "drivers", home / "code")
    copies, _ = launcher.freeze_code((str(home / "users"),))
    folder = DriverFolder.make(home / "drivers/flights/1")
    spec = replace(_spec(1), code_roots=copies, account=account.name, data_roots=())
    account_rights.prepare(spec, folder, accounts)
    with acting_as(account.uid, account.gid):
        assert (Path(copies[0]) / "flights.py").read_text() == "AIRLINE = 'AA'"
        with pytest.raises(PermissionError):
            os.listdir(home / "code")
        with pytest.raises(PermissionError):
            (Path(copies[0]) / "flights.py").open("a")


def test_a_file_sink_whose_log_we_have_begun_goes_to_the_account_and_no_data_root_does(
    home: Path, account: Account
) -> None:
    spec = replace(_spec(1), data_roots=(f"file://{home}/data", f"file://{home}/data/whole"))
    for name in ("out", "whole"):
        FileSink(home / "data" / name).seed(3)
        sink = {"sink": {"format": "json", "options": {"path": f"{home}/data/{name}"}}}
        account_rights.give_sink(sink, spec, account)
    FileSink(home / "elsewhere").seed(3)
    sink = {"sink": {"format": "json", "options": {"path": f"{home}/elsewhere"}}}
    account_rights.give_sink(sink, spec, account)
    assert _owners(home / "data/out") == {account.uid}
    assert _owners(home / "data/whole") == _owners(home / "elsewhere") == {os.geteuid()}


def test_a_checkpoint_of_before_goes_to_the_account_with_all_that_is_in_it(
    home: Path, account: Account, accounts: Accounts
) -> None:
    (home / "checkpoints/q1/offsets").mkdir(parents=True)
    (home / "checkpoints/q1/offsets/0").write_text("v1")
    (home / "checkpoints/q1/link").symlink_to(home / "secret_key")
    account_rights.give_checkpoint(f"file://{home}/checkpoints/q1", account, accounts)
    given = home / "checkpoints/q1"
    owners = {path.lstat().st_uid for path in (given, *given.rglob("*"))}
    assert owners == {account.uid}
    assert (home / "checkpoints/.headgate/q1.held").stat().st_uid == account.uid
    assert (home / "secret_key").stat().st_uid == os.geteuid()
    assert given.stat().st_mode & 0o777 == 0o700


def test_folders_of_headgate_and_of_others_are_not_given_away(
    home: Path, account: Account, accounts: Accounts
) -> None:
    (home / "secrets").mkdir(mode=0o700)
    for path in (home / "checkpoints", home / "secrets", home):
        with pytest.raises(LaunchRefused, match="Headgate's own folder"):
            account_rights.give_folder(path, account, accounts)
    theirs = home / "checkpoints/theirs"
    theirs.mkdir()
    os.chown(theirs, 65_534, 65_534)
    with pytest.raises(LaunchRefused, match="does not belong to"):
        account_rights.give_folder(theirs, account, accounts)


def test_a_link_that_an_account_has_planted_gives_it_nothing(
    home: Path, account: Account, accounts: Accounts
) -> None:
    """It owns the folder around; what it names there is taken for as much as it can do itself."""
    (home / "secrets/deep").mkdir(parents=True, mode=0o700)
    account_rights.give_folder(home / "checkpoints/mine", account, accounts)
    (home / "checkpoints/mine/q2").symlink_to(home / "secrets/deep")
    (home / "checkpoints/mine/.headgate").symlink_to(home / "secrets")
    assert not is_ours(home / "checkpoints/mine/q2")
    with pytest.raises(LaunchRefused):
        account_rights.give_checkpoint(f"file://{home}/checkpoints/mine/q2", account, accounts)
    assert (home / "secrets/deep").stat().st_uid == os.geteuid()
    assert os.listdir(home / "secrets") == ["deep"]


# --- work on what is an account's ---------------------------------------------------------


@pytest.fixture
def checkpoint(home: Path, account: Account, accounts: Accounts) -> Path:
    """Return a checkpoint that Spark has written, in the account's hands."""
    place = write_checkpoint(home / "checkpoints/q1", batches=range(3), store="zip")
    account_rights.give_checkpoint(f"file://{place}", account, accounts)
    return place


def _owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_a_copy_of_a_checkpoint_belongs_to_its_account(
    home: Path, account: Account, checkpoint: Path
) -> None:
    snapshot(f"file://{checkpoint}", home / "checkpoints/q1.copy", new_id=True)
    assert _owners(home / "checkpoints/q1.copy") == {account.uid}


def test_in_an_accounts_own_folder_copies_are_made_with_its_rights(
    home: Path, account: Account, checkpoint: Path
) -> None:
    give(giving_way(home / "checkpoints"), account.uid, account.gid)
    beside = home / "checkpoints/.headgate"
    snapshot(f"file://{checkpoint}", beside / "q1.snapshots/one")
    assert _owners(beside / "q1.snapshots") == {account.uid}
    (home / "kept/q1.snapshots/one").mkdir(parents=True, mode=0o700)
    beside.rename(home / "checkpoints/moved")
    beside.symlink_to(home / "kept")
    with pytest.raises((PermissionError, Unreadable)):
        snapshot(f"file://{checkpoint}", beside / "q1.snapshots/two")
    with pytest.raises((PermissionError, NotPlain)):
        remove(beside / "q1.snapshots/one")
    assert os.listdir(home / "kept/q1.snapshots") == ["one"]


def test_a_file_sinks_log_is_put_back_with_its_owners_rights(
    home: Path, account: Account, accounts: Accounts
) -> None:
    sink = FileSink(home / "data/out")
    sink.seed(3)
    give(sink.root, account.uid, account.gid)
    giving_way(home / "data")
    giving_way(home)
    sink.put_back(1, "an-operation")
    assert sorted(os.listdir(sink.log)) == ["0", "1"]
    assert _owners(sink.root) == {account.uid}


def test_rights_are_a_threads_and_come_back(account: Account, home: Path) -> None:
    held = (os.getgroups(), (home / "secret_key").read_text())
    with acting_as(account.uid, account.gid):
        with pytest.raises(PermissionError):
            (home / "secret_key").read_text()
        with acting_in(home, home), pytest.raises(PermissionError):  # not a way out
            (home / "secret_key").read_text()
    assert (os.getgroups(), (home / "secret_key").read_text()) == held
