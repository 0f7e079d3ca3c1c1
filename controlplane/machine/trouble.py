"""An error that stops `make run`, with what to do about it."""


class Trouble(Exception):
    """Something is missing or in the way; the message says what, `way_out` how to fix it."""

    def __init__(self, message: str, way_out: str) -> None:
        self.way_out = way_out
        super().__init__(f"{message}\n  {way_out}")
