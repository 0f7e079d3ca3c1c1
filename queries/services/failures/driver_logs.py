"""Read a driver's log for a person: its end, with every secret masked."""

from contextlib import suppress

from queries.domain.masking import mask_text, references
from queries.launchers.base import Launcher
from queries.models.drivers import Driver
from queries.secret_references import ReferenceMissing
from queries.services.local_references import local_references

#: Lines shown at most; the launcher stops at 256 KiB before.
MOST_LINES = 5000


def read_log(driver: Driver, *, launcher: Launcher, lines: int = 200) -> str:
    """Return the end of a driver's log, at most 5,000 lines; "" where there is none.

    The secrets that the application's definition names are looked up on this host and masked
    by value, everything else that looks like one by its form.
    """
    wanted = max(1, min(lines, MOST_LINES))
    text = launcher.log_tail(driver.application.name, driver.epoch, lines=wanted)
    return mask_text(text, secrets=secrets_of(driver))


def secrets_of(driver: Driver) -> set[str]:
    """Return the values of the secrets that a driver and its queries were given, as known here."""
    specs = [driver.application_revision.spec]
    specs += driver.runs.values_list("revision__spec", flat=True).distinct()
    known = local_references()
    for name in references(specs):
        with suppress(ReferenceMissing):
            known.resolve(name)
    return known.secrets
