"""Every page of the console, found by its addresses and not from a list."""

import re
from collections.abc import Iterator

from django.contrib.auth.models import User
from django.test import Client

from queries.models.drivers import Run
from queries.models.history import FailureGroup
from queries.urls import urlpatterns

#: What the addresses name, by what precedes it; else the application of "delays".
_NAMES = {"teams": "streams"}
_PART = re.compile(r"(?:(\w+)/)?<(\w+):(\w+)>")
_MORE = (
    "/bulk/queries/?verb=stop&name=delays&name=idle",
    "/find/?q=delays",
    "/audit/?tab=operations",
    "/queries/fatal/",
    "/queries/broken/failures/",
    "/api/v1/docs/",
    "/no/such/page/",
)
#: Addresses that are no page of a person who is signed in.
_LEFT_OUT = re.compile("^/(logout|live|sso|metrics|pods)/?")


def _addresses() -> Iterator[str]:
    numbers = {
        "group_id": FailureGroup.objects.earliest("pk").pk,
        "run_id": Run.objects.earliest("pk").pk,
    }

    def value(found: re.Match[str]) -> str:
        before, converter, name = found.groups(default="")
        told = str(numbers.get(name, 1)) if converter == "int" else _NAMES.get(before, "delays")
        return f"{before}/{told}" if before else told

    for known in urlpatterns:
        yield "/" + _PART.sub(value, str(known.pattern))
    yield from _MORE


def pages(user: User) -> list[tuple[str, str]]:
    """Return the address and the HTML of each page that this person is shown."""
    client = Client()
    client.force_login(user)
    found = []
    for address in _addresses():
        if _LEFT_OUT.match(address):
            continue
        answer = client.get(address)
        html = answer.get("Content-Type", "").startswith("text/html")
        if html and answer.status_code in (200, 404) and not answer.streaming:
            text = answer.content.decode()
            if "<main" in text and (answer.status_code == 200 or address in _MORE):
                found.append((address, text))
    return found
