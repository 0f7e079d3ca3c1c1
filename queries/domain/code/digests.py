"""The names of code: what an upload's digest looks like."""

import re

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def named(sha256: str) -> str:
    """Return a digest as definitions and REST write it."""
    return f"sha256:{sha256}"


def sha256_of(text: str) -> str | None:
    """Return the hexadecimal digits of a digest as definitions write it; None where it is none."""
    found = _DIGEST.fullmatch(text)
    return found[1] if found else None
