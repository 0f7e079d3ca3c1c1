"""Look up the drivers that send events (`controlplane.hosts`)."""

from collections.abc import Collection, Iterator
from datetime import timedelta

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from controlplane.hosts import event_key
from listeners.senders import EventSender
from queries.domain.hosts import SILENT_AFTER
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind, Reason
from queries.models.drivers import Driver, Host, Run

_AT_ONCE = 500  # ids per statement
#: How long the revocation of a given-up driver stays in Redis if its host remains silent.
_REVOKED_FOR = timedelta(days=30)


def drivers(ids: Collection[int]) -> dict[int, EventSender]:
    """Return drivers by id; drivers that have no row are omitted."""
    senders: dict[int, EventSender] = {}
    for some in _slices(ids):
        rows = Driver.objects.filter(pk__in=some).values_list("pk", "epoch")
        senders |= {pk: EventSender(epoch, event_key(pk, epoch)) for pk, epoch in rows}
    return senders


def runs(ids: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return the driver and query of each run, by run id; runs that have no row are omitted."""
    owners: dict[int, tuple[int, int]] = {}
    for some in _slices(ids):
        rows = Run.objects.filter(pk__in=some).values_list("pk", "driver_id", "query_id")
        owners |= {pk: (driver, query) for pk, driver, query in rows}
    return owners


def living() -> dict[int, int]:
    """Return the epochs of the drivers that may send now, by id."""
    rows = Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES))
    return dict(rows.values_list("pk", "epoch"))


def revoked() -> dict[int, int]:
    """Return the epochs of the drivers that must exit, wherever they run, by id.

    These are drivers whose host was declared gone, until it has a heartbeat again: its worker ends
    them before it sends one.
    """
    silent = list(
        Host.objects.filter(seen_at__lt=Now() - SILENT_AFTER).values_list("name", flat=True)
    )
    if not silent:
        return {}
    unheard = Host.objects.filter(name=OuterRef("host"), seen_at__lt=OuterRef("end_wanted_at"))
    rows = Driver.objects.filter(
        Exists(unheard),
        host__in=silent,
        kind=DriverKind.SERVICE,
        end_wanted=Reason.HOST_GONE,
        end_wanted_at__gt=Now() - _REVOKED_FOR,
    )
    return dict(rows.order_by().values_list("pk", "epoch"))


def _slices(ids: Collection[int]) -> Iterator[list[int]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]
