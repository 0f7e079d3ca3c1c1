"""Send one request to a user-entered URL, through the outbound guard and without redirects."""

from collections.abc import Mapping

import urllib3

from queries.channels.base import SendFailed


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> None:
    """Post a body; return normally if the response is 2xx, otherwise raise `SendFailed`.

    Trying again does not help if the response is 4xx, except for 408, 425 and 429.
    """
    request("POST", url, body=body, headers=headers, timeout_s=timeout_s)


def request(
    method: str,
    url: str,
    *,
    timeout_s: float,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Make one HTTP request, like `post`."""
    try:
        target = urllib3.util.parse_url(url)
    except urllib3.exceptions.HTTPError:
        raise SendFailed("Its URL is not valid.", lasting=True) from None
    if target.scheme not in ("https", "http") or not target.host or target.auth:
        raise SendFailed(
            "Its URL is not an https:// URL with a host and without a login.", lasting=True
        )
    try:
        with urllib3.PoolManager(timeout=urllib3.Timeout(total=timeout_s), retries=False) as pool:
            answer = pool.request(
                method,
                url,
                body=body,
                headers=dict(headers or {}),
                redirect=False,
                preload_content=False,
            )
            answer.close()  # the body of the response is not read, since it could be endless
            answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise SendFailed(f"It could not be reached: {_plainly(error)}.") from None
    if not 200 <= answer.status < 300:
        lasting = 400 <= answer.status < 500 and answer.status not in (408, 425, 429)
        raise SendFailed(
            f"It responded with {answer.status} {answer.reason or ''}".strip(), lasting=lasting
        )


def _plainly(error: Exception) -> str:
    """Return a description of the error, without the URL."""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "its host name cannot be resolved"
    if isinstance(error, urllib3.exceptions.NewConnectionError):  # it is also a TimeoutError
        return "no connection"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no response in time"
    if isinstance(error, urllib3.exceptions.SSLError):
        return "its certificate is not valid"
    return "no connection"
