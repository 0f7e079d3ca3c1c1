"""The real identity provider: npm's oidc-provider in a Node of its own."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pieces import IDENTITY_PROVIDER

CLIENT_ID = "headgate"
#: With what has to be encoded in a header.
CLIENT_SECRET = "a secret: of the tests/+%&"
HERE = "http://testserver"
STOP_LIMIT_S = 20


@dataclass(frozen=True)
class RealProvider:
    """A running provider, and the file of its people."""

    issuer: str
    people: Path

    def has(self, **groups: list[str]) -> None:
        """Let these people be known, in these groups, from their next sign-in."""
        self.people.write_text(json.dumps({name: {"groups": g} for name, g in groups.items()}))


@contextmanager
def real_provider(folder: Path, *consoles: str, auth: str = "client_secret_basic") -> Iterator[Any]:
    """Run a provider that leads back to these consoles alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    people = folder / "people.json"
    people.write_text("{}")
    client = {
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "token_endpoint_auth_method": auth,
        "redirect_uris": [f"{console}/sso/callback/" for console in consoles or (HERE,)],
    }
    given = {"port": port, "client": client, "people": str(people)}
    process = subprocess.Popen(
        ["node", "server.js", json.dumps(given)],
        cwd=IDENTITY_PROVIDER,
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline(), "the identity provider did not start"
        yield RealProvider(f"http://127.0.0.1:{port}", people)
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)
        if process.stdout is not None:
            process.stdout.close()
