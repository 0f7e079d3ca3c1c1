"""Log lines about something that stays as it is for long: one when it begins, one when it ends."""

import logging

logger = logging.getLogger("headgate.pod")


class Notes:
    """Writes a line to the log when something changes, and none while it stays as it is."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._last = ""

    def problem(self, text: str) -> None:
        """Note a problem."""
        if text != self._last:
            logger.warning("%s: %s", self._subject, text)
            self._last = text

    def fine(self) -> None:
        """Note that there is no problem any more."""
        if self._last:
            logger.info("%s: works again", self._subject)
            self._last = ""
