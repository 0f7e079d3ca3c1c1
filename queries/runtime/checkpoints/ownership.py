"""Who owns a checkpoint, and why a start may not have it: the same for every kind of storage."""

import json
from dataclasses import dataclass

from queries.domain.checkpoints.fence import Former
from queries.runtime.failures.error_capture import refusal


class CheckpointRefused(Exception):
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
    watch_s: float = 0.0  # between its looks for a later owner; 0: it does not look

    def text(self, epoch: int) -> str:
        """Return the content of an owner file for a run with this epoch."""
        about = {"installation": self.installation, "driver": self.driver, "host": self.host}
        watch = {"watch_s": self.watch_s} if self.watch_s else {}
        return json.dumps({**about, **watch, "epoch": epoch}, sort_keys=True)

    def compare(self, location: str, path: str, text: str, epoch: int, *, takeover: bool) -> None:
        """Raise `Refused` if the owner that a file names excludes a start with this epoch."""
        try:
            owner = json.loads(text)
            installation, later = str(owner["installation"]), int(owner["epoch"])
        except (ValueError, KeyError, TypeError) as error:
            if takeover:
                return
            raise CheckpointRefused(
                "foreign", f"The owner file {path} of {location} cannot be read: {error}."
            ) from error
        if installation != self.installation and not takeover:
            raise CheckpointRefused(
                "foreign",
                f"The checkpoint {location} belongs to another installation ({installation}, "
                f"last on host {owner.get('host', '?')}).",
            )
        if installation == self.installation and later > epoch:
            raise CheckpointRefused(
                "fenced",
                f"A later start (epoch {later}) has taken over the checkpoint {location}; this one "
                f"is epoch {epoch}.",
                owner_epoch=later,
            )


def former(text: str, succeeded_s: float) -> Former:
    """Return the owner that a file names; one that cannot be read is of another installation."""
    try:
        owner = json.loads(text)
        watch_s = float(owner.get("watch_s", 0))
        return Former(str(owner["installation"]), str(owner["host"]), watch_s, succeeded_s)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Former("", "", 0.0, succeeded_s)
