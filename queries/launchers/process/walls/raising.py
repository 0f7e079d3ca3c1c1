"""The walls around a driver, from its spec to each of its assignments, as the launcher sees them.

What is within them is decided once (`spec`), made ready before the driver starts (`prepare`), and
completed with each query that it is given later (`assign`).
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from queries.domain.probes.questions import TASK
from queries.domain.protocol import ASSIGNMENT, SECRETS, SPEC, Assignment, DriverSpec
from queries.domain.walls import Choice, Mode
from queries.driver_folder import DriverFolder
from queries.files import read_file
from queries.launchers.base import LaunchRefused
from queries.launchers.process import sighting
from queries.launchers.process.walls import giving, preparing
from queries.launchers.process.walls.accounts import Account, Accounts
from queries.launchers.process.walls.trial import Missing

logger = logging.getLogger(__name__)


class Raising:
    """Raises the walls of one host's drivers."""

    def __init__(
        self, choose: Callable[[], Choice], *, drivers: Path, secrets: Path, accounts: Accounts
    ) -> None:
        self.choice = choose
        self._drivers = drivers
        self._secrets = secrets
        self._accounts = accounts

    def spec(self, spec: DriverSpec, folder: DriverFolder) -> DriverSpec:
        """Return what a driver is started with, its walls among it.

        Raises `LaunchRefused` where those that are asked for by name cannot be had.
        """
        choice = self.choice()
        if choice.refused:
            raise LaunchRefused(choice.told)
        if choice.mode is Mode.NEITHER or folder.control == folder.root:
            return spec
        spec = replace(spec, walls=choice.mode, secrets_dir=str(folder.control / SECRETS))
        if choice.mode is Mode.ACCOUNTS:
            account = self._accounts.of(spec.application)
            giving.open_folders(folder, account, self._drivers)
            spec = replace(spec, account=account.name)
        return spec

    def prepare(self, spec: DriverSpec, folder: DriverFolder) -> None:
        """Make ready what the driver is to find: folders, and the secrets that it may have."""
        if not spec.walls:
            return
        if spec.account:
            giving.prepare(spec, folder, self._accounts)
        else:
            preparing.prepare(spec, folder)
        task = read_file(folder.control / TASK)
        assignment = sighting.loaded(Assignment, folder.control / ASSIGNMENT)
        self._hand_over(spec, folder, assignment, [json.loads(task)] if task else [])

    def assign(self, folder: DriverFolder, assignment: Assignment) -> None:
        """Let a driver that may run already have what its next assignment names."""
        if folder.control == folder.root:
            return
        spec = sighting.loaded(DriverSpec, folder.control / SPEC)
        if spec is not None and spec.walls:
            self._hand_over(spec, folder, assignment, [])

    def _hand_over(
        self,
        spec: DriverSpec,
        folder: DriverFolder,
        assignment: Assignment | None,
        more: list[Any],
    ) -> None:
        if spec.account:
            self._give(spec, assignment)
        named = [asdict(spec), *more, *_allowed(assignment)]
        preparing.hand_over(named, secrets=self._secrets, folder=folder)

    def _give(self, spec: DriverSpec, assignment: Assignment | None) -> None:
        """Give the checkpoints and file sinks of an assignment to the driver's account.

        What cannot be given its driver cannot write, and says so.
        """
        for entry in assignment.queries if assignment is not None else ():
            try:
                account = Account.of(spec.account)
                giving.give_checkpoint(entry.checkpoint, account, self._accounts)
                giving.give_sink(entry.spec, spec, account)
            except (LaunchRefused, Missing, OSError) as error:
                logger.warning("%s: %s", entry.called, error)


def _allowed(assignment: Assignment | None) -> list[dict[str, Any]]:
    """Return the definitions of an assignment that may have the secrets which they name."""
    entries = assignment.queries if assignment is not None else ()
    return [entry.spec for entry in entries if not entry.refused]
