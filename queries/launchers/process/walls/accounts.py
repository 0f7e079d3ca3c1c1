"""The host accounts under which drivers run: one for each application.

The assignment of accounts to applications is stored in a file on the host, because accounts belong
to the host. An assigned account is never given to another application, because files of the first
one may still exist.
"""

import grp
import json
import os
import pwd
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headgate_ground.files import exclusive, read_file, replace_file
from queries.account_files import capabilities
from queries.domain.counts import counted
from queries.launchers.base import LaunchRefused
from queries.launchers.process.walls.trial import Missing

PROGRAM = "setpriv"  # util-linux
FILE = "accounts.json"

#: capabilities(7): the needed ones, by number.
NEEDED = {
    "CAP_CHOWN": 0,  # gives folders to accounts
    "CAP_DAC_OVERRIDE": 1,  # reads files that drivers write
    "CAP_FOWNER": 3,  # removes it
    "CAP_FSETID": 4,  # keeps control files for one account's group
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,  # empties the bounding set
    "CAP_SYS_PTRACE": 19,  # finds a driver by its environment when its files are gone
}


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this host."""

    name: str
    uid: int
    gid: int
    home: str

    @classmethod
    def of(cls, name: str) -> "Account":
        """Return the account with the given name; raise `Missing` if there is none."""
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise Missing(f"the account {name} does not exist; create it with useradd.") from None
        return cls(name, found.pw_uid, found.pw_gid, found.pw_dir)

    def command(self, argv: list[str]) -> list[str]:
        """Return a command line that runs `argv` as this account, without any capabilities.

        The PID stays the same: setpriv(1) ends in execve(2).
        """
        return [
            *(PROGRAM, f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups"),
            *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"),
            *("--", *argv),
        ]

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables for the account's name and home."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


class Accounts:
    """The accounts listed in the setting, and the applications to which they are assigned."""

    def __init__(self, named: tuple[str, ...], home: Path) -> None:
        """`named` are names, or name prefixes followed by a *; `home` is HEADGATE_HOME."""
        self._named = named
        self._file = home / FILE
        self.home = home

    def all(self) -> list[Account]:
        """Return the accounts, sorted by name; raise `Missing` if one of them is unsuitable."""
        names: dict[str, None] = {}
        for one in self._named:
            if one.endswith("*"):
                known = sorted(each.pw_name for each in pwd.getpwall())
                names |= dict.fromkeys(each for each in known if each.startswith(one[:-1]))
            else:
                names[one] = None
        if not names:
            raise Missing(
                "HEADGATE_WALLS_ACCOUNTS contains no existing account; create one for each "
                "application with useradd."
            )
        found = [Account.of(name) for name in names]
        for account in found:
            self._check(account, found)
        return found

    @staticmethod
    def _check(account: Account, among: list[Account]) -> None:
        if account.uid in (0, os.geteuid()):
            raise Missing(f"the account {account.name} is the worker's own.")
        alike = [each.name for each in among if each.uid == account.uid]
        if len(alike) > 1:
            raise Missing(f"the accounts {' and '.join(alike)} have the same uid.")
        homes = [each.name for each in among if each.home == account.home]
        if len(homes) > 1:
            raise Missing(f"the accounts {' and '.join(homes)} have the same home directory.")
        sharing = [each.name for each in among if each.gid == account.gid]
        if len(sharing) > 1 or account.gid in (0, os.getegid()):
            raise Missing(
                f"the account {account.name} shares its group; create accounts with useradd "
                "--user-group."
            )
        own = {0, os.getegid()} & set(os.getgrouplist(account.name, account.gid))
        if own:
            name = grp.getgrgid(own.pop()).gr_name
            raise Missing(f"the account {account.name} is in the worker's group {name}.")
        if not Path(account.home).is_dir() or Path(account.home).stat().st_uid != account.uid:
            raise Missing(
                f"the account {account.name} has no home directory of its own; create accounts "
                "with useradd --create-home."
            )

    def of(self, application: str) -> Account:
        """Return an application's account, assigning the first free one if it has none.

        Raises `LaunchRefused` if all accounts are taken, or if the application's account no longer
        exists.
        """
        try:
            known = {account.name: account for account in self.all()}
            with exclusive(self._file.with_name(f".{FILE}.lock")):
                given = self.given()
                if application not in given:
                    free = [name for name in known if name not in given.values()]
                    if not free:
                        raise LaunchRefused(
                            f"{application} cannot be started: no account in "
                            f"HEADGATE_WALLS_ACCOUNTS ({counted(len(known), 'account')}) is free "
                            "for it. Create another one with useradd and add it there; "
                            "docs/operations.md describes how."
                        )
                    given[application] = free[0]
                    replace_file(self._file, json.dumps(given, indent=1, sort_keys=True))
        except Missing as error:
            raise LaunchRefused(f"HEADGATE_WALLS=accounts cannot be used: {error}") from error
        if (found := known.get(given[application])) is None:
            raise LaunchRefused(
                f"{application} has the account {given[application]}, which is no longer in "
                "HEADGATE_WALLS_ACCOUNTS. Add it again."
            )
        return found

    def uids(self) -> set[int]:
        """Return the UIDs of the accounts that are listed or assigned to an application."""
        found = set()
        with suppress(Missing):
            found = {account.uid for account in self.all()}
        for name in self.given().values():
            with suppress(Missing):
                found.add(Account.of(name).uid)
        return found

    def given(self) -> dict[str, str]:
        """Return the account name for each application that has one."""
        text = read_file(self._file)
        return dict(json.loads(text)) if text else {}


def refuse_incapable() -> None:
    """Raise `Missing` if this process lacks the program or a capability."""
    if shutil.which(PROGRAM) is None:
        raise Missing("setpriv is not installed; it is in the util-linux package.")
    held = capabilities()
    lacking = [name for name, bit in NEEDED.items() if not held >> bit & 1]
    if lacking:
        raise Missing(
            f"the worker lacks {', '.join(lacking)}. Run it as root, or give its unit "
            "AmbientCapabilities (docs/operations.md)."
        )
