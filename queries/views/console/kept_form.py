"""Keep what a form has sent when the answer is an error page: "Try again" sends it once more.

Passwords and other secrets are never written into a page. They are asked for again, as files are.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.middleware.csrf import get_token

from headgate_ground.masking import is_secret_name, mask_text

#: Characters of a value in which secrets are looked for; a longer one is not kept.
LONGEST_VALUE = 64 * 1024
#: Fields of every form, which nobody types.
_OURS = frozenset({"csrfmiddlewaretoken"})
#: Fields that the forms fill in themselves: where to go, which button, and on which revision.
_UNTYPED = _OURS | frozenset(
    ["next", "do", "verb", "tab", "base", "reviewed", "revision", "suggestion"]
    + ["accept_state_change"]
)


@dataclass(frozen=True, slots=True)
class Again:
    """A field that has to be filled in again, at least in part."""

    name: str
    kind: str  # "password", "text" or "file"
    value: str = ""  # with its secrets masked


@dataclass(frozen=True, slots=True)
class KeptForm:
    """A form's fields, for a page that sends them to the same address."""

    address: str
    token: str  # against forged forms, valid for this browser
    fields: tuple[tuple[str, str], ...]
    again: tuple[Again, ...]
    typed: bool  # whether it has fields that somebody may have typed

    @property
    def encoding(self) -> str:
        """Return how the form is sent."""
        has_files = any(field.kind == "file" for field in self.again)
        return "multipart/form-data" if has_files else "application/x-www-form-urlencoded"


def submitted_form(request: HttpRequest) -> KeptForm | None:
    """Return what a form of ours has sent; None if the request is none, or cannot be read."""
    match = request.resolver_match
    if request.method != "POST" or (match is not None and match.app_name == "api"):
        return None
    try:
        lists, files = list(request.POST.lists()), list(request.FILES)
    except (OSError, SuspiciousOperation, MultiPartParserError):
        return None  # too long, or the connection was closed
    fields: list[tuple[str, str]] = []
    again: list[Again] = []
    for name, values in lists:
        for value in () if name in _OURS else values:
            if is_secret_name(name) or len(value) > LONGEST_VALUE:
                again.append(Again(name, "password" if is_secret_name(name) else "text"))
            elif (masked := mask_text(value)) != value:
                again.append(Again(name, "text", masked))
            else:
                fields.append((name, value))
    again += [Again(name, "file") for name in files]
    named = {name for name, _ in fields} | {field.name for field in again}
    return KeptForm(
        request.get_full_path(),
        get_token(request),
        tuple(fields),
        tuple(again),
        typed=not named <= _UNTYPED,
    )


def is_same_origin(request: HttpRequest) -> bool:
    """Return whether the browser says that one of our own pages has sent a form.

    Only then is a form kept whose token against forged forms was wrong: otherwise, another site
    could fill in a form here, and have a user send it with one click.
    """
    if (site := request.headers.get("Sec-Fetch-Site")) is not None:
        return site == "same-origin"
    sender = request.headers.get("Origin") or request.headers.get("Referer") or ""
    parts = urlsplit(sender)
    return (parts.scheme, parts.netloc) == (request.scheme, request.get_host())
