"""What stops `make run`, as a sentence with the way out."""


class Trouble(Exception):
    """A piece is missing or in the way; the message says what, `way_out` what mends it."""

    def __init__(self, message: str, way_out: str) -> None:
        self.way_out = way_out
        super().__init__(f"{message}\n  {way_out}")
