"""Record sign-ins, failed sign-ins, lock-outs and sign-outs."""

from datetime import timedelta
from typing import Any

from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.utils import timezone

from queries.domain.access.acts import Act
from queries.models.access.audit_trail import AuditEntry
from queries.models.access.sessions import ADDRESS, BROWSER, LONGEST_BROWSER, SIGNED_IN_AT
from queries.services.access.asker import Asker, asker
from queries.services.access.audit_trail import note_act, record_act

#: Failed sign-ins recorded per address and minute, so that brute force cannot flood the log.
FAILURES_A_MINUTE = 30


def connect() -> None:
    """Connect to the sign-in signals of Django and django-axes."""
    for signal, receiver in (
        (user_logged_in, _signed_in),
        (user_logged_out, _signed_out),
        (user_login_failed, _failed),
        (user_locked_out, _locked_out),
    ):
        signal.connect(receiver, dispatch_uid=f"queries.audit{receiver.__name__}")


def _signed_in(request: Any, user: Any, **_: Any) -> None:
    """Record a sign-in, and store its time, address and browser in the session."""
    now, here = timezone.now(), asker() or Asker()
    session = getattr(request, "session", None)
    if session is not None:
        session[SIGNED_IN_AT] = now.isoformat()
        session[ADDRESS] = here.address
        session[BROWSER] = here.browser[:LONGEST_BROWSER]
    record_act(Act.SIGNED_IN, actor=user.get_username(), now=now, browser=here.browser)


def _signed_out(user: Any, **_: Any) -> None:
    if user is not None:
        record_act(Act.SIGNED_OUT, actor=user.get_username(), now=timezone.now())


def _failed(credentials: Any, request: Any = None, **_: Any) -> None:
    """Record a wrong password; if the user is locked out, `_locked_out` records that instead."""
    if getattr(request, "axes_locked_out", False):
        return
    _note_failure(**_whose(credentials.get("username")))


def note_failed_arrival(why: str) -> None:
    """Record a rejected sign-in from the identity provider."""
    _note_failure(actor="", why=why)


def _note_failure(**about: Any) -> None:
    now = timezone.now()
    recent = AuditEntry.objects.filter(kind=Act.SIGN_IN_FAILED, at__gt=now - timedelta(minutes=1))
    if recent.filter(address=_address()).count() < FAILURES_A_MINUTE:
        note_act(Act.SIGN_IN_FAILED, now=now, **about)


def _locked_out(username: Any = None, **_: Any) -> None:
    """Record a lock-out, only once while it lasts."""
    now = timezone.now()
    whose = _whose(username)
    lasting = AuditEntry.objects.filter(
        kind=Act.LOCKED_OUT, at__gt=now - settings.AXES_COOLOFF_TIME, address=_address()
    )
    if not lasting.filter(actor=whose["actor"]).exists():
        minutes = int(settings.AXES_COOLOFF_TIME / timedelta(minutes=1))
        note_act(Act.LOCKED_OUT, now=now, **whose, minutes=minutes)


def _address() -> str:
    return (asker() or Asker()).address


def _whose(username: Any) -> dict[str, Any]:
    """Return the account for the audit entry, without an unknown name: it may be a password."""
    name = str(username or "").replace("\x00", "")
    known = get_user_model().objects.filter(username=name).exists()
    return {"actor": name} if known else {"actor": "", "account": "unknown"}
