"""Requests to an installation: errors, retries, and paged lists."""

import ssl
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

import httpx

from headgate_cli.contexts import Installation
from headgate_cli.ends import CommandEnded, ExitCode

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
