"""Digests that identify stored code, and the text that says where a run's code comes from."""

import re
from collections.abc import Mapping
from typing import Any

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def named(sha256: str) -> str:
    """Return a digest in the form that definitions and REST use."""
    return f"sha256:{sha256}"


def sha256_of(text: str) -> str | None:
    """Return the hexadecimal digits of a digest in a definition; None if it is not a digest."""
    match = _DIGEST.fullmatch(text)
    return match[1] if match else None


def origin(spec: Mapping[str, Any]) -> str:
    """Return where an application's code comes from; "" for folders on the host."""
    code = spec.get("code") or {}
    if code.get("upload"):
        return f"upload {code['upload'][:19]}"
    if not code.get("git"):
        return ""
    folder = f", folder {code['folder']}" if code.get("folder") else ""
    ref = f" ({code['ref']})" if code.get("ref") else ""
    return f"{code['git']} at {code.get('commit', '')[:12]}{ref}{folder}"
