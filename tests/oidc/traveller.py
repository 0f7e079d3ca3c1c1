"""A person with a browser that runs no script: from the console to the provider and back."""

import re
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import requests
from django.test import Client

from tests.oidc.real import HERE

MOST_STEPS = 12


class Traveller:
    """One browser: cookies of the console, and cookies of the provider."""

    def __init__(self, name: str = "nina") -> None:
        self.name = name
        self.console = Client()
        self.provider = requests.Session()

    def set_out(self, onward: str = "") -> str:
        """Follow the button; return the provider's address that it leads to."""
        answer = self.console.get("/sso/login/", {"next": onward} if onward else {})
        assert answer.status_code == 302, answer.content.decode()
        return str(answer["Location"])

    def pass_through(self, address: str) -> str:
        """Sign in at the provider, and consent; return the console's address that it leads to."""
        answer = self.provider.get(address, allow_redirects=False, timeout=20)
        for _ in range(MOST_STEPS):
            if answer.is_redirect:
                address = urljoin(answer.url, answer.headers["Location"])
                if address.startswith(HERE):
                    return address
                answer = self.provider.get(address, allow_redirects=False, timeout=20)
                continue
            form = re.search(r'action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            assert form, answer.text
            assert prompt, answer.text
            sent = {"prompt": prompt[1], "login": self.name, "password": "any"}
            address = urljoin(answer.url, form[1])
            answer = self.provider.post(address, sent, allow_redirects=False, timeout=20)
        raise AssertionError(f"the provider does not lead back: {address}")

    def arrive(self, address: str) -> Any:
        """Come back to the console."""
        return self.console.get(address.removeprefix(HERE))

    def sign_in(self, onward: str = "") -> Any:
        """Go all the way; return the console's answer."""
        return self.arrive(self.pass_through(self.set_out(onward)))

    @property
    def is_in(self) -> bool:
        """Tell whether the console lets this browser read."""
        return self.console.get("/queries/").status_code == 200


def asked(address: str) -> dict[str, str]:
    """Return the parameters of an address, each once."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
