"""The shared base of all API endpoints: permissions, formats, and errors."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import IO, Any, ClassVar

from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import NotAcceptable, ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from queries.api import errors
from queries.api.schema import ProblemSchema
from queries.domain.accepted_values import refuse_characters
from queries.domain.errors import Invalid, Problem
from queries.domain.former_names import use_instead
from queries.models.access.accounts import AccessToken, KeptAnswer
from queries.models.lock_waits import again_if_busy
from queries.roles import VIEW, author_rights, may
from queries.selectors.access import insist_at, insist_scope
from queries.services.access.audit import note_token
from queries.services.access.tokens import ByToken
from queries.services.idempotency_keys import digest_of, free_key, keep_answer, take_key

logger = logging.getLogger(__name__)

#: Maximum nesting of a request body. A definition has about six levels.
DEEPEST = 50
_BLOCK = 1 << 20  # bytes read at once from a streamed body


class HasRole(BasePermission):
    """Allow users with the permission that the view requires for the method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the user's role is sufficient; an anonymous request gets 401 or 403.

        Raises `Forbidden` if the URL concerns another team's application.
        """
        assert isinstance(view, ApiView)
        needed = view.permissions.get(request.method or "", VIEW)
        if not request.user.is_authenticated:
            return False
        if not may(request.user, needed):
            insist_scope(request.user, needed)
            return False
        insist_at(request.user, needed, request.resolver_match)
        return True


class AnyForm(DefaultContentNegotiation):
    """Use the first renderer, instead of failing, if none supports an accepted type."""

    def select_renderer(self, request: Any, renderers: Any, format_suffix: Any = None) -> Any:
        """Return the renderer and its media type."""
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except NotAcceptable:
            return renderers[0], renderers[0].media_type


class BoundedJSONParser(BaseParser):
    """Parse JSON in UTF-8, up to `most` bytes and `DEEPEST` levels deep.

    It is not a `JSONParser`: for those, REST framework reads the body first, up to Django's limit.
    """

    media_type = "application/json"

    times = 1  # factor for a body's maximum size

    @classmethod
    def most(cls) -> int:
        """Return the maximum bytes of a body."""
        return cls.times * int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)

    def parse(
        self, stream: Any, media_type: str | None = None, context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the value in a body.

        Raises `errors.TooLarge`, `ParseError` if the body is not valid JSON, and `Invalid` for
        characters and numbers that cannot be stored.
        """
        most = self.most()
        raw = stream.read(most + 1)
        if len(raw) > most:
            raise errors.TooLarge(most)
        try:
            body = json.loads(raw)
        except RecursionError as error:
            raise _too_deep() from error
        except ValueError as error:  # not UTF-8, not JSON, or a number with thousands of digits
            raise ParseError(f"The body is not valid JSON: {error}") from error
        if _is_deep(body):
            raise _too_deep()
        refuse_characters(body)
        return body


class Streamed:
    """A body read as a stream, or from a copy on disk if its digest is needed first."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most = stream, most
        self._copy: IO[bytes] | None = None

    def digest(self) -> str:
        """Return the digest of the complete body; raise `errors.TooLarge` above `most` bytes."""
        hasher, size = sha256(), 0
        self._copy = SpooledTemporaryFile(max_size=_BLOCK)  # noqa: SIM115  # closed by `close`
        while block := self._stream.read(_BLOCK):
            size += len(block)
            if size > self._most:
                raise errors.TooLarge(self._most)
            hasher.update(block)
            self._copy.write(block)
        self._copy.seek(0)
        self._stream = self._copy
        return hasher.hexdigest()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, or no bytes at the end."""
        return self._stream.read(size)

    def close(self) -> None:
        """Remove the copy."""
        if self._copy is not None:
            self._copy.close()


class _AsciiRenderer(JSONRenderer):
    ensure_ascii = True


class EscapingRenderer(JSONRenderer):
    """Render JSON in UTF-8, escaping characters that cannot be encoded."""

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Return the body; this succeeds for every stored string."""
        try:
            body: bytes = super().render(data, *args, **kwargs)
        except UnicodeEncodeError:
            body = _AsciiRenderer().render(data, *args, **kwargs)
        return body


def _too_deep() -> ParseError:
    return ParseError(f"The body is nested more than {DEEPEST} levels deep.")


def _is_deep(value: Any) -> bool:
    """Return whether a value is nested more than `DEEPEST` levels deep."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            member
            for container in level
            if isinstance(container, dict | list)
            for member in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True


class _Answered(Exception):
    """The same request has already been answered, under its idempotency key."""

    def __init__(self, row: KeptAnswer) -> None:
        self.row = row
        super().__init__(str(row))


class ApiView(APIView):
    """A view whose methods declare the permission that they require (VIEW by default)."""

    permissions: ClassVar[dict[str, str]] = {}  # per method, set by its decorator
    authentication_classes = (ByToken, SessionAuthentication)
    permission_classes = (HasRole,)
    content_negotiation_class = AnyForm
    parser_classes: Any = (BoundedJSONParser,)
    renderer_classes: Any = (EscapingRenderer,)
    schema = ProblemSchema()
    #: Whether a POST writes nothing: it can be repeated, so no answer is kept under its key.
    writes_nothing = False

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        methods = {name.upper(): getattr(cls, name, object()) for name in cls.http_method_names}
        roles = {name: method.role for name, method in methods.items() if hasattr(method, "role")}
        cls.permissions = {**cls.permissions, **roles}

    def perform_authentication(self, request: Request) -> None:
        """Identify the user, and note the token, if any, for the audit log and the limits."""
        super().perform_authentication(request)
        if isinstance(request.auth, AccessToken):
            note_token(request.auth)

    def get_exception_handler(self) -> Callable[..., Any]:
        """Return the error handler that all views share."""
        return errors.answer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check permissions; a POST already answered under its key is not repeated.

        A URL whose POST writes nothing, or that does not support POST, ignores the key.
        """
        super().initial(request, *args, **kwargs)
        key = None if self.writes_nothing else request.headers.get("Idempotency-Key")
        if key is not None and request.method == "POST" and "POST" in self.permissions:
            body: Any = request.data
            if isinstance(body, Streamed):
                self._streamed = body
                body = body.digest()
            digest = digest_of("POST", request.get_full_path(), body)
            take = partial(take_key, user=self.actor, key=key, digest=digest, now=self.now)
            row = again_if_busy(take)
            if row.status is not None:
                raise _Answered(row)
            self._taken = row

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Store the response to a request that has a key; free the key if the request failed."""
        response = super().finalize_response(request, response, *args, **kwargs)
        if streamed := getattr(self, "_streamed", None):
            streamed.close()
        if row := getattr(self, "_taken", None):
            if response.status_code < 300 and isinstance(response, Response):
                names = ("Location", "ETag")
                headers = {name: response[name] for name in names if name in response}
                body = json.loads(EscapingRenderer().render(response.data) or b"null")
                stored_response = {"status": response.status_code, "headers": headers, "body": body}
                keep = partial(keep_answer, row, **stored_response)
            else:
                keep = partial(free_key, row)
            try:
                again_if_busy(keep)
            except DatabaseError:  # the request is done: its sender must still get the response
                logger.exception("the response to a request with a key was not kept")
        return response

    def handle_exception(self, exc: Exception) -> Any:
        """Return every error, including unknown ones, as a problem."""
        if isinstance(exc, _Answered):
            headers = exc.row.headers | {"Idempotency-Replayed": "true"}
            return Response(exc.row.body, status=exc.row.status, headers=headers)
        response = super().handle_exception(exc)
        response.exception = True
        return response

    @property
    def now(self) -> datetime:
        """Return the time of the request, which stays the same while it is handled."""
        if not hasattr(self, "_now"):
            self._now = timezone.now()
        return self._now

    @property
    def actor(self) -> str:
        """Return the name under which actions are recorded."""
        return str(self.request.user.get_username())

    @property
    def by(self) -> dict[str, Any]:
        """Return the acting user and the time, as arguments for services."""
        return {"actor": self.actor, "now": self.now}

    @property
    def author(self) -> dict[str, Any]:
        """Return the user, the time, and whether the user may write Python, for the catalog."""
        return self.by | {"rights": author_rights(self.request.user)}

    def query_param(self, name: str) -> str:
        """Return a query parameter, or "" if it is not given."""
        return str(self.request.query_params.get(name, "")).replace("\x00", "")

    def boolean_param(self, name: str) -> bool | None:
        """Return a boolean query parameter, or None if it is not given."""
        text = self.request.query_params.get(name)
        if text not in (None, "true", "false"):
            raise errors.invalid(name, text, "is neither true nor false.")
        return None if text is None else text == "true"

    def choice_params(self, name: str, words: Iterable[Any]) -> tuple[str, ...]:
        """Return the values of a query parameter; raise `Invalid` if one is not a valid choice."""
        choices = [str(word) for word in words]
        values = tuple(self.request.query_params.getlist(name))
        for value in values:
            if value not in choices:
                way_out = use_instead(value, choices) or f"Known: {', '.join(choices)}."
                raise errors.invalid(name, value, "is not a known value.", way_out)
        return values

    def read(self, serializer: type[Serializer[Any]], data: Any) -> dict[str, Any]:
        """Return the validated input; raise `Invalid` for errors and unknown fields."""
        if not isinstance(data, dict):
            raise errors.invalid("body", data, "is not a JSON object.")
        form = serializer(data=data)
        unknown = sorted(set(data) - set(form.fields) - set(getattr(serializer, "ignored", ())))
        if unknown:
            field_names = ", ".join(form.fields) or "none"
            raise Invalid(
                [
                    Problem(name[:200], "", "is not a known field.", f"Fields: {field_names}.")
                    for name in unknown
                ]
            )
        form.is_valid(raise_exception=True)
        return dict(form.validated_data)
