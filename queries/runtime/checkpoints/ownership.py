"""Who owns a checkpoint, and why a start may not have it: the same for every kind of storage."""

import json
from dataclasses import dataclass

from queries.runtime.failures.error_capture import refusal


class Refused(Exception):
    """The checkpoint is not available; `why` is held, own, fenced or foreign.

    `run` is the run of this driver that holds the checkpoint; None if another process holds it.
    """

    def __init__(
        self,
        why: str,
        message: str,
        holder_pid: int | None = None,
        *,
        run: int | None = None,
        owner_epoch: int | None = None,
    ) -> None:
        super().__init__(message)
        self.error = refusal(why, message, holder_pid, owner_epoch=owner_epoch)
        self.run = run


@dataclass(frozen=True, slots=True)
class Owner:
    """A driver, as owner files name it."""

    installation: str
    driver: int
    host: str

    def text(self, epoch: int) -> str:
        """Return the content of an owner file for a run with this epoch."""
        about = {"installation": self.installation, "driver": self.driver, "host": self.host}
        return json.dumps({**about, "epoch": epoch}, sort_keys=True)

    def compare(self, location: str, path: str, text: str, epoch: int, *, takeover: bool) -> None:
        """Raise `Refused` if the owner that a file names excludes a start with this epoch."""
        try:
            owner = json.loads(text)
            installation, seen = str(owner["installation"]), int(owner["epoch"])
        except (ValueError, KeyError, TypeError) as error:
            if takeover:
                return
            raise Refused(
                "foreign", f"The owner file {path} of {location} cannot be read: {error}."
            ) from error
        if installation != self.installation and not takeover:
            raise Refused(
                "foreign",
                f"The checkpoint {location} belongs to another installation ({installation}, "
                f"last on host {owner.get('host', '?')}).",
            )
        if installation == self.installation and seen > epoch:
            raise Refused(
                "fenced",
                f"A later start (epoch {seen}) has taken over the checkpoint {location}; this one "
                f"is epoch {epoch}.",
                owner_epoch=seen,
            )
