"""Requests to an installation: their errors, their second tries, and lists page by page."""

import ssl
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

import httpx

from headgate_cli.contexts import Place
from headgate_cli.ends import Code, Ended

ANSWER_LIMIT_S = 60.0
#: What changes something may take longer: an apply of a thousand new queries takes about a minute.
POST_LIMIT_S = 300.0
CONNECT_LIMIT_S = 10.0
#: A busy server, or one that is replaced at this moment, is asked so often, with pauses between.
TRIES = 5
LONGEST_PAUSE_S = 10.0
#: Of a list's pages, the largest that the API gives.
PAGE = 200

Json = dict[str, Any]


class Server:
    """The REST API of one installation."""

    def __init__(self, place: Place) -> None:
        self.place = place
        try:
            verify = ssl.create_default_context(cafile=place.ca) if place.ca else True
        except (OSError, ssl.SSLError):
            raise Ended(Code.REFUSED, f"{place.ca} holds no certificates in PEM.") from None
        self._client = httpx.Client(
            headers={
                "Authorization": f"Token {place.token}",
                "User-Agent": f"headgate-cli/{_version()}",
                "Accept": "application/json",
            },
            timeout=httpx.Timeout(ANSWER_LIMIT_S, connect=CONNECT_LIMIT_S),
            verify=verify,
            follow_redirects=False,  # no token goes where the server points
        )

    def get(self, *path: Any, limit_s: float = ANSWER_LIMIT_S, **asked: Any) -> Any:
        """Return what an address answers; parameters that are None are left out."""
        params = {name: value for name, value in asked.items() if value not in (None, [])}
        return self._json(self._ask("GET", path, params=params, timeout=limit_s))

    def find(self, *path: Any) -> Json | None:
        """Return what an address answers; None where nothing is there."""
        answer = self._ask("GET", path, (404,))
        return None if answer.status_code == 404 else self._json(answer)

    def text(self, *path: Any, **asked: Any) -> str:
        """Return what an address answers as plain text."""
        return self._ask("GET", path, params=asked, headers={"Accept": "text/plain, */*"}).text

    def post(self, *path: Any, body: Any = None, accept: tuple[int, ...] = ()) -> Any:
        """Post a body; return the answer. Errors whose status is in `accept` are answers too."""
        return self._json(self._post(path, accept, json={} if body is None else body))

    def upload(self, *path: Any, content: bytes, kind: str) -> Any:
        """Post bytes of a media type; return the answer."""
        return self._json(self._post(path, (), content=content, headers={"Content-Type": kind}))

    def delete(self, *path: Any) -> None:
        """Delete what stands at an address."""
        self._ask("DELETE", path)

    def rows(self, *path: Any, most: int, **asked: Any) -> Iterator[Json]:
        """Yield a list's rows over its pages, `most` at most."""
        asked = {**asked, "limit": min(PAGE, most)}
        while True:
            found = self.get(*path, **asked)
            for row in found["results"]:
                yield row
                most -= 1
                if most <= 0:
                    return
            if not found.get("next"):
                return
            # The rest of the address is the server's idea of its name, which is not ours.
            asked["cursor"] = parse_qs(urlsplit(found["next"]).query)["cursor"][0]

    def _post(self, path: tuple[Any, ...], accept: tuple[int, ...], **sent: Any) -> httpx.Response:
        # The same key at each try: what has arrived already is not done twice.
        headers = {**sent.pop("headers", {}), "Idempotency-Key": str(uuid4())}
        limit = httpx.Timeout(POST_LIMIT_S, connect=CONNECT_LIMIT_S)
        return self._ask("POST", path, accept, headers=headers, timeout=limit, **sent)

    def _ask(
        self, method: str, path: tuple[Any, ...], accept: tuple[int, ...] = (), **sent: Any
    ) -> httpx.Response:
        # The slash in the name of a script's query is ~ in an address.
        parts = (quote(str(part).replace("/", "~"), safe=":~") for part in ("api", "v1", *path))
        address = f"{self.place.url}/{'/'.join(parts)}/"
        pause, attempt, ends = 0.5, 1, time.monotonic() + POST_LIMIT_S
        lost = False  # a request that changes something was sent, and its answer did not come
        while True:
            last = attempt >= TRIES or time.monotonic() > ends
            try:
                answer = self._client.request(method, address, **sent)
            except httpx.HTTPError as error:
                # What was not sent can be sent again; so can what only reads, and what has a key.
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                lost = lost or not (unsent or method == "GET")
                again = unsent or method in ("GET", "POST")
                if last or not again or _is_certificate(error):
                    raise self._no_answer(error, lost) from None
                attempt += 1
            else:
                told = answer.headers.get("Retry-After", "")
                if lost and answer.status_code == 409 and told:  # the first one is still at work
                    if time.monotonic() > ends:
                        raise self._no_answer(httpx.ReadTimeout("it is still at work"), lost)
                    time.sleep(max(0.5, float(told) if told.isdigit() else 0))
                    continue
                if answer.status_code not in (429, 503) or last:
                    return self._checked(answer, accept)
                attempt += 1
                pause = max(pause, float(told) if told.isdigit() else 0)
                if pause > LONGEST_PAUSE_S:
                    return self._checked(answer, accept)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _no_answer(self, error: httpx.HTTPError, lost: bool) -> Ended:
        if _is_certificate(error):
            message = f"The certificate of {self.place.url} is not trusted: {error}"
            return Ended(Code.NO_ANSWER, message, "Name the file of your own CA with --ca.")
        said = str(error) or type(error).__name__
        message = f"{self.place.url} does not answer: {said}"
        way_out = "Check the address, and that Headgate runs there."
        if lost:
            way_out = "The request was sent: look at what it has changed before you repeat it."
        return Ended(Code.NO_ANSWER, message, way_out)

    def _checked(self, answer: httpx.Response, accept: tuple[int, ...]) -> httpx.Response:
        if answer.is_success or answer.status_code in accept:
            return answer
        try:
            told = answer.json()
            title, detail = str(told["title"]), str(told.get("detail", ""))
        except (ValueError, KeyError, TypeError):
            raise self._no_headgate(answer) from None
        problems = told.get("problems") or []
        message = title if problems or not detail else f"{title}: {detail}"
        unable = answer.status_code >= 500 or answer.status_code == 429
        code = Code.NO_ANSWER if unable else Code.REFUSED
        raise Ended(code, message, str(told.get("way_out") or ""), problems)

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise self._no_headgate(answer) from None

    def _no_headgate(self, answer: httpx.Response) -> Ended:
        to = f" with a redirect to {answer.headers['Location']}" if answer.is_redirect else ""
        message = f"{answer.url} answers {answer.status_code}{to}, and not as Headgate does."
        return Ended(Code.NO_ANSWER, message, "Check the address of the installation.")


def _is_certificate(error: Exception) -> bool:
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def _version() -> str:
    try:
        return version("headgate-cli")
    except PackageNotFoundError:  # run from a checkout
        return "0"
