"""The operator's verbs. Each owns its transaction, and pages and API call the same one."""

from datetime import datetime

from queries.domain.states import StopMode
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.failures import FailureGroup
from queries.models.history import Operation


def request_start(*, query: Query, actor: str, now: datetime) -> Operation:
    """Want the query RUNNING on its newest revision.

    A start already satisfied or under way returns that operation; on BROKEN, FAILED or
    BACKOFF it clears the counters and goes now. Raises `NotAllowed` for an archived query.
    """
    raise NotImplementedError


def request_stop(*, query: Query, mode: StopMode, actor: str, now: datetime) -> Operation:
    """Want the query STOPPED, after the batch in flight (graceful) or at once."""
    raise NotImplementedError


def request_restart(*, query: Query, actor: str, now: datetime) -> Operation:
    """Stop the query gracefully and start it on its newest revision; joins an open restart."""
    raise NotImplementedError


def request_application_restart(
    *, application: Application, actor: str, now: datetime
) -> Operation:
    """Replace the application's driver by a fresh one on its newest revision, pools and code."""
    raise NotImplementedError


def request_application_stop(
    *, application: Application, mode: StopMode, actor: str, now: datetime
) -> list[Operation]:
    """Stop each of the application's queries."""
    raise NotImplementedError


def archive_query(*, query: Query, actor: str, now: datetime) -> None:
    """Delete a stopped query: free its name and location, keep history and checkpoint files.

    Raises `NotAllowed` unless desired is STOPPED and no run is open.
    """
    raise NotImplementedError


def archive_application(*, application: Application, actor: str, now: datetime) -> None:
    """Delete an application without living queries; raises `NotAllowed` naming those it has."""
    raise NotImplementedError


def resolve_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a failure group as dealt with; its next failure reopens it."""
    raise NotImplementedError


def reopen_group(*, group: FailureGroup, actor: str, now: datetime) -> None:
    """Mark a failure group as not dealt with after all."""
    raise NotImplementedError
