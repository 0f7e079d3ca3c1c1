"""An identity provider that lies as a test tells it to: own keys, real tokens, real HTTP.

Left alone it is honest: what a test changes is the one thing that is wrong.
"""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from jwt.algorithms import RSAAlgorithm

from tests.oidc.real import CLIENT_ID

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
FOREIGN_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KID = "the-published-one"


def published(key: rsa.RSAPrivateKey = KEY) -> dict[str, Any]:
    """Return a key as a provider publishes it."""
    held = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**held, "kid": KID, "use": "sig", "alg": "RS256"}


def signed(
    claims: dict[str, Any],
    by: Callable[[bytes], bytes] = lambda text: KEY.sign(text, PKCS1v15(), SHA256()),
    **header: Any,
) -> str:
    """Return a token made by hand: PyJWT would not make each of those that an attacker can."""
    header = {"alg": "RS256", "typ": "JWT", "kid": KID} | header
    parts = ({n: v for n, v in header.items() if v is not None}, claims)
    text = b".".join(_encoded(json.dumps(part).encode()) for part in parts)
    return (text + b"." + _encoded(by(text))).decode()


def _encoded(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


@dataclass
class Liar:
    """What it says; a test changes it before somebody signs in."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)  # over the honest ones; None: left out
    userinfo: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    keys: list[dict[str, Any]] = field(default_factory=lambda: [published()])
    sign: Callable[[dict[str, Any]], str] = lambda claims: signed(claims)
    answer: dict[str, Any] = field(default_factory=dict)  # of the token endpoint, over the honest
    redirects: dict[str, str] = field(default_factory=dict)  # path -> where it sends one instead
    instead: dict[str, Any] = field(default_factory=dict)  # path -> JSON that is said there
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # path, what was sent
    _begun: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, sent: dict[str, str]) -> tuple[int, Any]:
        """Answer a request: (302, address) or (status, JSON)."""
        self.asked.append((path, sent))
        if path in self.redirects:
            return 302, self.redirects[path]
        if path in self.instead:
            return 200, self.instead[path]
        if path == "/.well-known/openid-configuration":
            return 200, self._document() | self.document
        if path == "/jwks":
            return 200, {"keys": self.keys}
        if path == "/authorize":
            self._begun = sent
            back = {"code": "a-code", "state": sent["state"]}
            return 302, f"{sent['redirect_uri']}?{urlencode(back)}"
        if path == "/token":
            return self._token(sent)
        if path == "/userinfo":
            return 200, {"sub": "s-1"} | self.userinfo
        return 404, {}

    def _document(self) -> dict[str, Any]:
        places = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "jwks_uri": "jwks",
            "userinfo_endpoint": "userinfo",
        }
        return {"issuer": self.issuer} | {n: f"{self.issuer}/{p}" for n, p in places.items()}

    def _token(self, sent: dict[str, str]) -> tuple[int, Any]:
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = _encoded(digest).decode()
        if challenge != self._begun["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        honest = {
            "iss": self.issuer,
            "sub": "s-1",
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": self._begun["nonce"],
            "preferred_username": "nina",
            "groups": ["data"],
        }
        claims = {n: v for n, v in (honest | self.claims).items() if v is not None}
        honest = {"access_token": "t", "token_type": "Bearer", "id_token": self.sign(claims)}
        return 200, honest | self.answer


@contextmanager
def liar() -> Iterator[Liar]:
    """Run one on loopback."""
    told = Liar()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._say(*told.get(parts.path, dict(parse_qsl(parts.query))))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._say(*told.get(self.path, dict(parse_qsl(body))))

        def _say(self, status: int, what: Any) -> None:
            body = b"" if status == 302 else json.dumps(what).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", what)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    told.issuer = f"http://127.0.0.1:{server.server_port}"
    try:
        yield told
    finally:
        server.shutdown()
        thread.join(20)
        server.server_close()
