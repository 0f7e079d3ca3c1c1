"""The names of code: digests of what is kept, and what a run says that it ran."""

import re
from collections.abc import Mapping
from typing import Any

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def named(sha256: str) -> str:
    """Return a digest as definitions and REST write it."""
    return f"sha256:{sha256}"


def sha256_of(text: str) -> str | None:
    """Return the hexadecimal digits of a digest as definitions write it; None where it is none."""
    found = _DIGEST.fullmatch(text)
    return found[1] if found else None


def origin(spec: Mapping[str, Any]) -> str:
    """Return where the code of an application's definition is from; "" for folders of the host."""
    code = spec.get("code") or {}
    if code.get("upload"):
        return f"upload {code['upload'][:19]}"
    if not code.get("git"):
        return ""
    folder = f", folder {code['folder']}" if code.get("folder") else ""
    return f"{code['git']} at {code.get('commit', '')[:12]}{folder}"
