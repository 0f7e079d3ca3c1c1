"""Middleware for every request: record the requester and the session's use, bound its masking."""

import logging
from collections.abc import Callable
from datetime import timedelta

from django.contrib.auth import SESSION_KEY
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from controlplane.long_texts import WebSearch
from headgate_ground.masking import searched_by
from queries.services.access.asker import Asker, asked_by
from queries.services.access.proxies import note_proxy
from queries.services.access.sessions import note_use

logger = logging.getLogger(__name__)

Respond = Callable[[HttpRequest], HttpResponseBase]

#: Requests that a page makes by itself, so they do not show that a user is present.
_UNATTENDED = frozenset({"live"})
NOTED_EVERY = timedelta(minutes=1)


class Requests:
    """Record the requester and the use of the session; keep responses out of caches.

    A request searches only the beginning of its texts for secrets in this process.
    """

    def __init__(self, respond: Respond) -> None:
        self.respond = respond

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the view's response."""
        address = str(request.META.get("REMOTE_ADDR") or "")
        if "X-Forwarded-For" in request.headers and request.user.is_authenticated:
            note_proxy(request.META, now=timezone.now())
        asker = Asker(address=address, browser=request.headers.get("User-Agent", ""))
        with asked_by(asker), searched_by(WebSearch()):
            response = self.respond(request)
        response.headers.setdefault("Cache-Control", "no-store")  # static files never get here
        self._note_use(request)
        return response

    def _note_use(self, request: HttpRequest) -> None:
        """Record that the session is in use, once a minute; a failure must not break the page."""
        session = request.session
        seen_at = getattr(session, "seen_at", None)
        view = request.resolver_match.url_name if request.resolver_match else ""
        now = timezone.now()
        if seen_at is None or now - seen_at < NOTED_EVERY or view in _UNATTENDED:
            return
        try:
            if session.session_key and session.get(SESSION_KEY):
                note_use(session.session_key, now=now)
        except DatabaseError as error:
            logger.warning("could not record that a session is in use: %s", error)
