"""Numbers in addresses and forms: anybody may write anything there."""

_MOST_DIGITS = 18  # a database's whole number holds 18 of any value


def whole(text: str | None) -> int | None:
    """Return a whole number of up to 18 ASCII digits; None where the text is none.

    `str.isdigit` also takes what `int` does not ("²"), and `int` no text without end.
    """
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
