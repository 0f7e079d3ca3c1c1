"""The installation, its token, and requests to it: errors, retries, and paged lists."""

import json
import os
import re
import ssl
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

import httpx

from headgate_cli.output import CommandEnded, ExitCode, refused

#: Hosts to which a token may be sent without TLS: this machine.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Installation:
    """One installation."""

    url: str  # without a trailing slash
    token: str
    ca: str = ""  # file with the CA certificates (PEM); "": the default ones

    def __repr__(self) -> str:
        """Return only the URL."""
        return f"Place({self.url})"


class Contexts:
    """The file that `login` writes, readable only by its owner."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or _file()
        self.current = ""
        self.places: dict[str, Installation] = {}
        self._read()

    def _read(self) -> None:
        try:
            if os.name == "posix" and self.file.stat().st_mode & 0o077:
                raise refused(
                    f"{self.file} contains tokens, and other users can read it.",
                    f"chmod 600 {self.file}",
                )
            document: Any = json.loads(self.file.read_text())
            self.current = str(document["current"])
            self.places = {
                name: Installation(**installation)
                for name, installation in document["contexts"].items()
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            way_out = "Remove it, and log in again: headgate login URL"
            raise refused(f"{self.file} cannot be read.", way_out) from None

    def write(self) -> None:
        """Replace the file atomically."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        document = {
            "current": self.current,
            "contexts": {name: asdict(installation) for name, installation in self.places.items()},
        }
        handle, written = tempfile.mkstemp(dir=self.file.parent)  # with mode 0600
        with os.fdopen(handle, "w") as target:
            json.dump(document, target, indent=2)
        os.replace(written, self.file)


def chosen(context: str, ca: str) -> Installation:
    """Return the installation to connect to.

    1. The named context.
    2. HEADGATE_URL with HEADGATE_TOKEN; one without the other is rejected, so that no token is sent
       to an installation other than its own.
    3. The context of the last login.
    """
    url, token = os.environ.get("HEADGATE_URL", ""), os.environ.get("HEADGATE_TOKEN", "")
    if not context and (url or token):
        if not (url and token):
            missing = "HEADGATE_TOKEN" if url else "HEADGATE_URL"
            raise refused(
                f"{missing} is not set.", "Set both HEADGATE_URL and HEADGATE_TOKEN, or neither."
            )
        return checked(Installation(url, token, ca))
    contexts = Contexts()
    name = context or contexts.current
    if not name:
        raise refused(
            "No installation is selected.",
            "headgate login URL, or set HEADGATE_URL and HEADGATE_TOKEN.",
        )
    installation = contexts.places.get(name)
    if installation is None:
        names = ", ".join(sorted(contexts.places)) or "none"
        raise refused(f"Context {name} does not exist.", f"Choose one of: {names}.")
    return checked(Installation(installation.url, installation.token, ca or installation.ca))


def checked(installation: Installation) -> Installation:
    """Return a place with its URL normalised; reject a URL that must not receive a token."""
    parts = urlsplit(installation.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        way_out = "Use a URL such as https://headgate.example.org."
        raise CommandEnded(
            ExitCode.USAGE, f"{installation.url} is not a valid Headgate URL.", way_out
        )
    lets_http = os.environ.get("HEADGATE_ALLOW_HTTP") == "1"
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and not lets_http:
        raise refused(
            f"{installation.url} does not use TLS, so others could read the token in transit.",
            "Use https, or set HEADGATE_ALLOW_HTTP=1 for a trial.",
        )
    if not re.fullmatch(r"[!-~]+", installation.token):
        # The token is never quoted: a library that rejects it as a header would print it.
        raise refused("The token contains spaces, line breaks or other invalid characters.")
    if installation.ca and not Path(installation.ca).is_file():
        raise refused(f"The certificate file {installation.ca} does not exist.")
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return Installation(
        f"{parts.scheme}://{parts.netloc}{path}", installation.token, installation.ca
    )


def checked_name(name: str) -> str:
    """Return a context's name; reject a name that would need quoting in a shell."""
    if not _NAME.fullmatch(name):
        way_out = "Use letters, digits and . _ -, starting with a letter or a digit."
        raise CommandEnded(ExitCode.USAGE, f"{name} is not a valid context name.", way_out)
    return name


def _file() -> Path:
    if named := os.environ.get("HEADGATE_CONFIG"):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("headgate") / "contexts.json"


ANSWER_LIMIT_S = 60.0
#: Changes may take longer: an apply of a thousand new queries takes about a minute.
POST_LIMIT_S = 300.0
CONNECT_LIMIT_S = 10.0
#: Maximum attempts, with pauses in between, if a server is busy or being replaced.
TRIES = 5
LONGEST_PAUSE_S = 10.0
#: The API's largest page size.
PAGE = 200

Json = dict[str, Any]


class Server:
    """The REST API of one installation."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        try:
            verify = ssl.create_default_context(cafile=installation.ca) if installation.ca else True
        except (OSError, ssl.SSLError):
            raise CommandEnded(
                ExitCode.REFUSED, f"{installation.ca} contains no PEM certificates."
            ) from None
        self._client = httpx.Client(
            headers={
                "Authorization": f"Token {installation.token}",
                "User-Agent": f"headgate-cli/{version_of_this()}",
                "Accept": "application/json",
            },
            timeout=httpx.Timeout(ANSWER_LIMIT_S, connect=CONNECT_LIMIT_S),
            verify=verify,
            follow_redirects=False,  # tokens are never sent to where the server redirects
        )

    def get(self, *path: Any, limit_s: float = ANSWER_LIMIT_S, **asked: Any) -> Any:
        """Return the response to a GET; parameters that are None are omitted."""
        params = {name: value for name, value in asked.items() if value not in (None, [])}
        return self._json(self._request("GET", path, params=params, timeout=limit_s))

    def find(self, *path: Any) -> Json | None:
        """Return the response to a GET; None if there is nothing at the path."""
        answer = self._request("GET", path, (404,))
        return None if answer.status_code == 404 else self._json(answer)

    def text(self, *path: Any, **asked: Any) -> str:
        """Return the response to a GET as plain text."""
        return self._request("GET", path, params=asked, headers={"Accept": "text/plain, */*"}).text

    def post(self, *path: Any, body: Any = None, accept: tuple[int, ...] = ()) -> Any:
        """Post a body; return the response. Errors whose status is in `accept` are returned too."""
        return self._json(self._post(path, accept, json={} if body is None else body))

    def upload(self, *path: Any, content: bytes, kind: str, **asked: str) -> Any:
        """Post bytes with a media type; return the response."""
        headers = {"Content-Type": kind}
        return self._json(self._post(path, (), content=content, headers=headers, params=asked))

    def delete(self, *path: Any, **asked: str) -> None:
        """Delete the object at a path."""
        self._request("DELETE", path, params=asked)

    def rows(self, *path: Any, most: int, **parameters: Any) -> Iterator[Json]:
        """Yield the rows of a list from all its pages, at most `most`."""
        parameters = {**parameters, "limit": min(PAGE, most)}
        while True:
            page = self.get(*path, **parameters)
            for row in page["results"]:
                yield row
                most -= 1
                if most <= 0:
                    return
            if not page.get("next"):
                return
            # The rest of the URL contains the server's own idea of its name, which may differ from
            # ours.
            parameters["cursor"] = parse_qs(urlsplit(page["next"]).query)["cursor"][0]

    def _post(self, path: tuple[Any, ...], accept: tuple[int, ...], **sent: Any) -> httpx.Response:
        # The same key for each attempt, so that a request that has arrived is not executed twice.
        headers = {**sent.pop("headers", {}), "Idempotency-Key": str(uuid4())}
        limit = httpx.Timeout(POST_LIMIT_S, connect=CONNECT_LIMIT_S)
        return self._request("POST", path, accept, headers=headers, timeout=limit, **sent)

    def _request(
        self, method: str, path: tuple[Any, ...], accept: tuple[int, ...] = (), **sent: Any
    ) -> httpx.Response:
        # A slash in the name of a script's query is written as ~ in a URL.
        parts = (quote(str(part).replace("/", "~"), safe=":~") for part in ("api", "v1", *path))
        address = f"{self.installation.url}/{'/'.join(parts)}/"
        pause, attempt, ends = 0.5, 1, time.monotonic() + POST_LIMIT_S
        lost = False  # a change was sent, and its response was lost
        while True:
            last = attempt >= TRIES or time.monotonic() > ends
            try:
                answer = self._client.request(method, address, **sent)
            except httpx.HTTPError as error:
                # Requests that were not sent can be repeated, and so can reads and requests with a
                # key.
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                lost = lost or not (unsent or method == "GET")
                again = unsent or method in ("GET", "POST")
                if last or not again or _is_certificate(error):
                    raise self._no_answer(error, lost) from None
                attempt += 1
            else:
                retry_after = answer.headers.get("Retry-After", "")
                if (
                    lost and answer.status_code == 409 and retry_after
                ):  # the first is still processed
                    if time.monotonic() > ends:
                        raise self._no_answer(
                            httpx.ReadTimeout("the request is still being processed"), lost
                        )
                    time.sleep(max(0.5, _seconds(retry_after)))
                    continue
                if answer.status_code not in (429, 503) or last:
                    return self._checked(answer, accept)
                attempt += 1
                pause = max(pause, _seconds(retry_after))
                if pause > LONGEST_PAUSE_S:
                    return self._checked(answer, accept)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _no_answer(self, error: httpx.HTTPError, lost: bool) -> CommandEnded:
        if _is_certificate(error):
            message = f"The certificate of {self.installation.url} is not trusted: {error}"
            return CommandEnded(ExitCode.NO_ANSWER, message, "Set your own CA's file with --ca.")
        reason = str(error) or type(error).__name__
        message = f"{self.installation.url} is not responding: {reason}"
        way_out = "Check the URL, and that Headgate is running there."
        if lost:
            way_out = "The request was sent; check what it changed before you repeat it."
        return CommandEnded(ExitCode.NO_ANSWER, message, way_out)

    def _checked(self, answer: httpx.Response, accept: tuple[int, ...]) -> httpx.Response:
        if answer.is_success or answer.status_code in accept:
            return answer
        try:
            body = answer.json()
            title, detail = str(body["title"]), str(body.get("detail", ""))
        except (ValueError, KeyError, TypeError):
            raise self._no_headgate(answer) from None
        problems = body.get("problems") or []
        message = title if problems or not detail else f"{title}: {detail}"
        unable = answer.status_code >= 500 or answer.status_code == 429
        code = ExitCode.NO_ANSWER if unable else ExitCode.REFUSED
        raise CommandEnded(code, message, str(body.get("way_out") or ""), problems)

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise self._no_headgate(answer) from None

    def _no_headgate(self, answer: httpx.Response) -> CommandEnded:
        to = f" with a redirect to {answer.headers['Location']}" if answer.is_redirect else ""
        message = (
            f"{answer.url} responded with {answer.status_code}{to}, which is not a Headgate "
            "response."
        )
        return CommandEnded(ExitCode.NO_ANSWER, message, "Check the URL of the installation.")


def _seconds(header: str) -> float:
    """Return the seconds in a `Retry-After`; 0 for a date, or anything else that a proxy wrote."""
    return float(header) if header.isascii() and header.isdecimal() and len(header) < 10 else 0


def _is_certificate(error: Exception) -> bool:
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def version_of_this() -> str:
    """Return the command's version; "0" if it runs from a checkout."""
    try:
        return version("headgate-cli")
    except PackageNotFoundError:
        return "0"
