"""Send incident messages from an outbox: one row per message, retried until delivered.

Only the worker that sent a message knows whether it was delivered. If that worker dies before
recording it, its lease expires and the message is sent again, marked as a repeat.
"""

import ipaddress
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from controlplane import fail_points
from headgate_ground.masking import references as named_in
from listeners.loops.backlogs import loop_errors
from listeners.loops.slices import Lease, Leases
from queries.channels import kinds
from queries.channels.base import Message, Network, SendFailed
from queries.channels.kinds import destination_of
from queries.domain.alerts.forms import (
    DeliveryState,
    IncidentKind,
    IncidentState,
    NotificationStep,
    Severity,
)
from queries.domain.alerts.routing import RoutedIncident, RoutingRule, Telling, plan
from queries.domain.errors import in_words
from queries.domain.secrets import ANYWHERE, PAGE, Bound, SecretUse, unbound
from queries.domain.secrets import channel as channel_named
from queries.models.alerts import Channel, Delivery, Incident
from queries.secret_references import ReferenceMissing
from queries.selectors.alerts.incidents import explain_incident
from queries.selectors.alerts.rules import gone_at, rules_in_force
from queries.selectors.lineage import Downstream
from queries.selectors.secrets import bound_to
from queries.services.local_roots import local_references

#: Time limit per message, in seconds.
LIMIT_S = 20.0


def send(kind: str, form: Mapping[str, Any], message: Message, *, name: str, bound: Bound) -> None:
    """Deliver a message; raise `SendFailed`, whose message is safe to show and store.

    `bound` contains the channel's secrets and the hosts to which each can be sent; a secret that is
    not granted is not read.
    """
    references = local_references()
    told = destination_of(kind, form)
    named = named_in(form)
    _require(named - bound.keys(), () if told == ANYWHERE else (told,), name, bound)
    try:
        values = references.resolve_in(dict(form))
        stripped = {
            key: value.strip() if isinstance(value, str) else value for key, value in values.items()
        }
        place = destination_of(kind, stripped)
        if place == told:
            _require(named, (place,), name, bound)
        elif unbound(
            _uses(named, (place,)), bound, channel_named(name)
        ):  # the host is part of a secret
            raise SendFailed(f"Its URL leads to a host that the grant does not list: {PAGE}.")
        kinds.send(kind, stripped, message, timeout_s=LIMIT_S, allowed=allowed_networks())
    except ReferenceMissing as error:
        raise SendFailed(str(error)) from None
    except SendFailed as error:
        raise SendFailed(references.mask(str(error)), lasting=error.lasting) from None
    except Exception as error:  # a bug in a channel affects that channel only
        raise SendFailed(f"It failed with {type(error).__name__}.") from None


def _require(secrets: set[str], places: tuple[str, ...], name: str, bound: Bound) -> None:
    if refused := in_words(unbound(_uses(secrets, places), bound, channel_named(name))):
        raise SendFailed(refused)


def _uses(secrets: set[str], places: tuple[str, ...]) -> list[SecretUse]:
    return [SecretUse(secret, "", places) for secret in sorted(secrets)]


def allowed_networks() -> list[Network]:
    """Return the private networks to which alerts can be sent."""
    return [ipaddress.ip_network(one, strict=False) for one in settings.ALERT_NETWORKS]


logger = logging.getLogger(__name__)
_each = loop_errors("alerts", logger)

#: Incidents examined per call.
MOST_INCIDENTS = 500
#: How long a message is retried before it is given up.
TRIED_FOR = timedelta(days=1)
#: The pause after the first failed attempt; it doubles up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=15), timedelta(minutes=30)
#: A worker that started sending and has been silent for this long is considered dead.
LEASE = timedelta(seconds=3 * LIMIT_S)
_leases = Leases(LEASE)
#: Sending time per call, in seconds; the next call sends the rest.
BUDGET_S = 45.0
#: Channels sent to in parallel: a slow one must not delay the others.
SIDE_BY_SIDE = 8

#: Steps of an open incident: useless once it has closed.
_WHILE_OPEN = (NotificationStep.OPENED, NotificationStep.ESCALATED, NotificationStep.REMINDER)


# --- which messages are due ---------------------------------------------------------------


def announce_incidents(*, now: datetime) -> int:
    """Write a delivery for each message that is due; return how many were written."""
    due = Incident.objects.filter(announce_after__lte=now).select_related("application", "query")
    incidents = list(due.order_by("announce_after")[:MOST_INCIDENTS])
    if not incidents:
        return 0
    rules, below = rules_in_force(), Downstream()
    count = 0
    for incident in incidents:
        with _each.isolate_errors(f"incident {incident.pk}"):
            count += _announce(incident, rules, below, now)
    return count


def _announce(
    incident: Incident, rules: list[RoutingRule], below: Downstream, now: datetime
) -> int:
    with transaction.atomic():
        routed = of_incident(incident)
        if not routed.open:  # unsent messages of a closed incident are useless
            Delivery.objects.filter(
                incident=incident, state=DeliveryState.WAITING, step__in=_WHILE_OPEN
            ).filter(Q(leased_until=None)).update(state=DeliveryState.SKIPPED, attempt_after=None)
        found = plan(routed, rules, list(_heard(incident)), now=now)
        downstream = _downstream(incident, below) if found.tellings else ""
        rows = [
            Delivery(
                incident=incident,
                channel_id=one.channel,
                occurrence=incident.occurrence,
                step=one.step,
                repeat=one.repeat,
                message=_form(message_of(incident, one, now, downstream=downstream)),
                created_at=now,
                attempt_after=now,
            )
            for one in found.tellings
        ]
        Delivery.objects.bulk_create(rows, ignore_conflicts=True)
        # If the row has changed since then, that change must be examined again.
        Incident.objects.filter(pk=incident.pk, announce_after=incident.announce_after).update(
            announce_after=found.again_at
        )
    return len(rows)


def _downstream(incident: Incident, below: Downstream) -> str:
    """Describe the downstream of an open incident; "" if it is empty or cannot be read."""
    return below.of(incident).text if incident.state == IncidentState.OPEN else ""


def of_incident(incident: Incident) -> RoutedIncident:
    """Return an incident in the form that the routing decision uses."""
    return RoutedIncident(
        kind=IncidentKind(incident.kind),
        severity=Severity(incident.severity),
        application=incident.application.name if incident.application else "",
        open=incident.state == IncidentState.OPEN,
        opened_at=incident.opened_at,
        labels=incident.labels,
        acknowledged=bool(incident.acknowledged_by),
        acknowledged_until=incident.acknowledged_until,
        snoozed_until=incident.snoozed_until,
        gone_at=gone_at(incident),
    )


def _heard(incident: Incident) -> Iterator[Telling]:
    """Yield the messages about this occurrence, except those that were skipped."""
    rows = Delivery.objects.filter(incident=incident, occurrence=incident.occurrence)
    told = rows.exclude(state=DeliveryState.SKIPPED)
    for step, channel, repeat in told.order_by("pk").values_list("step", "channel", "repeat"):
        yield Telling(NotificationStep(step), channel, repeat)


def message_of(
    incident: Incident, telling: Telling, now: datetime, *, downstream: str = ""
) -> Message:
    """Return the message for one channel: the cause, location, next step and its link.

    `downstream` names the queries that read the affected ones' data. Forecasts and observations of
    an open incident are not repeated once it is over.
    """
    explained = explain_incident(incident)
    resolved = bool(explained.ended) and telling.step is NotificationStep.RESOLVED
    text, facts = explained.why.cause, [("Where", explained.why.place)]
    if resolved:
        text = explained.ended
    else:
        facts.append(("What to do", explained.why.step))
        if settings.PUBLIC_URL:
            facts.append(("Do it here", f"{settings.PUBLIC_URL}{explained.address}"))
    facts += [("Application", incident.application.name if incident.application else "")]
    facts += [("Query", incident.query.name if incident.query else "")]
    if incident.affected_count > 1:
        facts.append(("Queries", _listed(incident)))
    facts += [("Downstream", downstream)]
    facts += [("Host", incident.host), ("Since", f"{incident.opened_at:%Y-%m-%d %H:%M:%S} UTC")]
    if incident.closed_at and resolved:
        facts.append(("Until", f"{incident.closed_at:%Y-%m-%d %H:%M:%S} UTC"))
        facts.append(("Closed by", incident.closed_by or "Headgate: its cause cleared"))
    address = f"{settings.PUBLIC_URL}/alerts/{incident.uuid}/" if settings.PUBLIC_URL else ""
    return Message(
        key=f"headgate/{incident.uuid}/{incident.occurrence}",
        step=telling.step,
        severity=incident.severity,
        kind=incident.kind,
        title=incident.title,
        text=text,
        url=address,
        at=now,
        labels=incident.labels,
        facts=tuple((name, value) for name, value in facts if value),
    )


def _listed(incident: Incident) -> str:
    more = incident.affected_count - len(incident.affected)
    return ", ".join(incident.affected) + (f" and {more:,} more" if more > 0 else "")


def _form(message: Message) -> dict[str, Any]:
    return {**asdict(message), "at": message.at.isoformat()}


def _message(form: dict[str, Any]) -> Message:
    facts = tuple((str(name), str(value)) for name, value in form["facts"])
    return Message(**{**form, "at": datetime.fromisoformat(form["at"]), "facts": facts})


# --- sending ------------------------------------------------------------------------------


def send_alerts(*, now: datetime, clock: Any, limit_s: float = BUDGET_S) -> int:
    """Send pending messages, in order within each channel; return how many were sent.

    Channels are served in parallel. `clock` returns the current aware time; `now` is when the call
    started.
    """
    sent = 0
    under_way: dict[Future[None], tuple[Delivery, Lease]] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="alerts") as pool:
        while True:
            busy = {delivery.channel_id for delivery, _ in under_way.values()}
            if (clock() - now).total_seconds() < limit_s:
                for delivery in _next(busy, SIDE_BY_SIDE - len(under_way), now=clock()):
                    lease = _lease(delivery, now=clock())
                    if lease is None:
                        continue
                    try:
                        sending = _sending(delivery)
                    except Exception as error:  # an unreadable row must not block the others
                        _record(delivery, lease, error, now=clock())
                    else:
                        under_way[pool.submit(sending)] = delivery, lease
            if not under_way:
                return sent
            done, _ = wait(under_way, timeout=LIMIT_S, return_when=FIRST_COMPLETED)
            for future in done:
                delivery, lease = under_way.pop(future)
                fail_points.reach(fail_points.AFTER_ALERT)
                with _each.isolate_errors(f"delivery {delivery.pk}"):
                    sent += _record(delivery, lease, future.exception(), now=clock())


def _sending(delivery: Delivery) -> Callable[[], None]:
    """Return a callable that sends a message; built before its thread, which does not use the
    database.
    """
    channel, message = delivery.channel, _message(delivery.message)
    if delivery.leased_until is not None:  # by a worker that died: it may have sent it
        message = replace(message, repeat=True)
    bound = bound_to(channel_named(channel.name))
    return partial(send, channel.kind, channel.settings, message, name=channel.name, bound=bound)


def _next(busy: set[int], most: int, *, now: datetime) -> list[Delivery]:
    """Return the pending deliveries, oldest first, one per idle channel."""
    waiting = Delivery.objects.filter(
        _leases.free(now),
        state=DeliveryState.WAITING,
        attempt_after__lte=now,
        channel__enabled=True,
    ).exclude(channel__in=busy)
    first: dict[int, Delivery] = {}
    rows = waiting.select_related("channel").order_by("attempt_after", "pk")
    for delivery in rows[:MOST_INCIDENTS]:
        first.setdefault(delivery.channel_id, delivery)
    return list(first.values())[:most]


def _lease(delivery: Delivery, *, now: datetime) -> Lease | None:
    """Lease a row before sending it; None if another worker has it."""
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING)
    return _leases.take(waiting, delivery.pk, now=now, attempts=F("attempts") + 1)


def _record(delivery: Delivery, lease: Lease, error: BaseException | None, *, now: datetime) -> int:
    """Record the result of an attempt; return how many messages were sent.

    If another worker has taken over the row, that worker records its own attempt.
    """
    channel = Channel.objects.filter(pk=delivery.channel_id)
    if error is None:
        lease.release(state=DeliveryState.SENT, sent_at=now, attempt_after=None, last_error="")
        channel.update(last_sent_at=now, failing_since=None, last_error="")
        return 1
    said = str(error) if isinstance(error, SendFailed) else type(error).__name__
    lasting = isinstance(error, SendFailed) and error.lasting
    over = lasting or now - delivery.created_at >= TRIED_FOR
    pause = min(FIRST_PAUSE * 2 ** min(delivery.attempts, 12), LONGEST_PAUSE)
    lease.release(
        state=DeliveryState.GIVEN_UP if over else DeliveryState.WAITING,
        attempt_after=None if over else now + pause,
        last_error=said,
    )
    channel.filter(failing_since=None).update(failing_since=now)
    channel.update(last_error=said)
    logger.warning("channel %s failed to deliver: %s", delivery.channel.name, said)
    return 0


def try_channel(channel: Channel, *, actor: str, now: datetime) -> Delivery:
    """Queue a test message for a channel; the returned row records the result."""
    message = Message(
        key=f"headgate/test/{channel.pk}/{now:%Y%m%dT%H%M%S}",
        step=NotificationStep.OPENED,
        severity=Severity.WARNING,
        kind="test",
        title="Headgate test message",
        text=f"{actor} is testing the channel {channel.name}. Nothing is wrong.",
        url="",
        at=now,
    )
    return Delivery.objects.create(
        channel=channel,
        occurrence=0,
        step=NotificationStep.OPENED,
        message=_form(message),
        created_at=now,
        attempt_after=now,
    )


def forget_old(*, now: datetime) -> int:
    """Delete closed incidents and messages that are older than the retention period."""
    before = now - timedelta(days=settings.HISTORY_RETENTION_DAYS)
    gone, _ = Incident.objects.filter(state=IncidentState.CLOSED, closed_at__lt=before).delete()
    tests, _ = Delivery.objects.filter(incident=None, created_at__lt=before).delete()
    return gone + tests
