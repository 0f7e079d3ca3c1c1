"""Numbers in URLs and forms, which can contain anything."""

from headgate_ground.tolerant import values


def whole(text: str | None) -> int | None:
    """Return an integer of ASCII digits that a database can store; None for any other text."""
    return values.whole((text or "").strip())
