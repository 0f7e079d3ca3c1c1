"""The disk that holds the data folder is full: the web says so, and all comes back by itself.

The data folder is a small file system of its own, which only root may mount.
"""

import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tests.faults.small_disks import fill, free, is_full
from tests.faults.system import PROGRAMS, System

pytestmark = [pytest.mark.redis, pytest.mark.faults, pytest.mark.timeout(900)]


class Browser:
    """Somebody who looks at pages and signs in."""

    def __init__(self, system: System) -> None:
        self.base = f"http://127.0.0.1:{system.port}/"
        self.cookies = CookieJar()
        handler = urllib.request.HTTPCookieProcessor(self.cookies)
        self.opener = urllib.request.build_opener(handler)

    def sign_in(self, password: str, username: str = "admin") -> tuple[int, str]:
        self.get("login/")
        return self.post("login/", username=username, password=password)

    def get(self, path: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(self.base + path))

    def post(self, path: str, **form: str) -> tuple[int, str]:
        (token,) = [c.value for c in self.cookies if c.name.startswith("csrf")]
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token, **form}).encode()
        return self._ask(urllib.request.Request(self.base + path, data=data))

    def _ask(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with self.opener.open(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def test_a_full_disk_ends_nothing_is_said_in_plain_words_and_passes(
    roomy_system: System, small_disk: Path
) -> None:
    system, disk = roomy_system, small_disk
    password = system.said.split("login admin / ")[1].split()[0]
    somebody = Browser(system)
    assert somebody.sign_in(password)[0] == 200
    before = system.identities()

    fill(disk)
    assert is_full(disk)
    # Make the programs talk: the supervisor logs the end of each, and what comes after it.
    for name in ("ingester", "worker"):
        os.kill(system.identities()[name][0], signal.SIGKILL)
        fill(disk)
    system.wait("a warning", lambda: "MB are free where the data is stored" in somebody.get("")[1])
    assert somebody.get("")[0] == 200
    status, text = _refused(system, disk)
    assert (status, "The disk is full" in text, "Traceback" in text) == (503, True, False), text
    assert system.process is not None
    assert system.process.poll() is None, system.said
    assert system.identities()["supervisord"] == before["supervisord"]
    assert system.identities()["web"] == before["web"]

    free(disk)
    system.wait("all programs", lambda: system.living() == PROGRAMS | {"supervisord"})
    system.wait("a sign-in", lambda: Browser(system).sign_in(password)[0] == 200)
    system.wait("readiness", system.ready)


def _refused(system: System, disk: Path) -> tuple[int, str]:
    """Sign in, again and again, until the database finds no room for a session."""
    answers = [(0, "")]

    def refused() -> bool:
        fill(disk)
        answers.append(Browser(system).sign_in("x" * 2000, "nobody"))
        return answers[-1][0] >= 500

    system.wait("a refusal", refused)
    return answers[-1]
