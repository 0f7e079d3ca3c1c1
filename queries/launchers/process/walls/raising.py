"""Isolate a driver for the launcher, from the driver's spec to each assignment.

What an isolated driver can access is determined once (`spec`), prepared before the driver starts
(`prepare`), and extended for each query that the driver is given later (`assign`).
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headgate_ground.files import read_file
from queries.domain.probes.questions import TASK
from queries.domain.protocol import ASSIGNMENT, SECRETS, SPEC, Assignment, DriverSpec
from queries.domain.walls import IsolationChoice, Mode
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.process import sighting
from queries.launchers.process.walls import preparing


class Raising:
    """Sets up the isolation of one host's drivers."""

    def __init__(self, choose: Callable[[], IsolationChoice], *, secrets: Path) -> None:
        self.choice = choose
        self._secrets = secrets

    def spec(self, spec: DriverSpec, folder: DriverFolder) -> DriverSpec:
        """Return the spec with which a driver is started, including its isolation.

        Raises `LaunchRefused` if explicitly requested isolation is not available.
        """
        choice = self.choice()
        if choice.refused:
            raise LaunchRefused(choice.told, passing=choice.late)
        if choice.mode is Mode.NEITHER:
            return spec
        return replace(spec, walls=choice.mode, secrets_dir=str(folder.control / SECRETS))

    def prepare(self, spec: DriverSpec, folder: DriverFolder) -> None:
        """Prepare the folders that the driver needs and the secrets that it is allowed to use."""
        if not spec.walls:
            return
        preparing.prepare(spec, folder)
        task = read_file(folder.control / TASK)
        assignment = sighting.loaded(Assignment, folder.control / ASSIGNMENT)
        self._hand_over(spec, folder, assignment, [json.loads(task)] if task else [])

    def assign(self, folder: DriverFolder, assignment: Assignment) -> None:
        """Give a driver, even a running one, access to its next assignment's files and secrets."""
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
        named = [asdict(spec), *more, *_allowed(assignment)]
        preparing.hand_over(named, secrets=self._secrets, folder=folder)


def _allowed(assignment: Assignment | None) -> list[dict[str, Any]]:
    """Return the assignment's definitions that are allowed to have the secrets they refer to."""
    entries = assignment.queries if assignment is not None else ()
    return [entry.spec for entry in entries if not entry.refused]
