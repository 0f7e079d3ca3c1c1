"""Freeze the code and packages of one driver: copies that later edits cannot change."""

from dataclasses import dataclass

from queries.domain.definitions.spec import ApplicationSpec
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.drivers import Driver
from queries.selectors.code import count_of_roots
from queries.services.code.preparing import take


@dataclass(frozen=True, slots=True)
class Frozen:
    """The code and packages that a driver imports."""

    roots: tuple[str, ...] = ()  # copies, in import order
    sha256: str = ""  # of all of them
    packages: str = ""  # folder; "" if none


NO_CODE = Frozen()


def freeze(spec: ApplicationSpec, launcher: Launcher) -> Frozen:
    """Return the code and packages for a driver that is launched now.

    Raises `LaunchRefused` if they are not available, with `passing` while they are being prepared.
    """
    prepared = take(spec)
    roots, sha256 = launcher.freeze_code(prepared.roots)
    return Frozen(roots, sha256, prepared.packages)


def frozen(driver: Driver, launcher: Launcher) -> Frozen:
    """Return the code and packages frozen for a driver whose launch must be completed.

    Raises `LaunchRefused` if the copy is gone and cannot be restored.
    """
    spec = ApplicationSpec.model_validate(driver.application_revision.spec)
    prepared = take(spec)
    copies = launcher.frozen_code(count_of_roots(spec), driver.code_sha256)
    if copies is None:  # the same code gives the same copies
        copies, now = launcher.freeze_code(prepared.roots)
        if now != driver.code_sha256:
            raise LaunchRefused(
                f"The copy of the code for driver {driver.epoch} ({driver.code_sha256[:12]}) "
                "is gone, and the files have changed since. Start the application again; a new "
                "driver runs the current files."
            )
    return Frozen(copies, driver.code_sha256, prepared.packages)
