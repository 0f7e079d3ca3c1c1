"""What is known of the drivers that send events (`controlplane.senders`)."""

from collections.abc import Collection, Iterator

from controlplane.senders import event_key
from listeners.senders import Sender
from queries.domain.states import OPEN_DRIVER_STATES
from queries.models.drivers import Driver, Run

_AT_ONCE = 500  # ids in one statement


def drivers(ids: Collection[int]) -> dict[int, Sender]:
    """Return drivers by id; without those that have no row."""
    found: dict[int, Sender] = {}
    for some in _slices(ids):
        rows = Driver.objects.filter(pk__in=some).values_list("pk", "epoch", "seals_events")
        for pk, epoch, seals in rows:
            found[pk] = Sender(epoch, event_key(pk, epoch) if seals else b"")
    return found


def runs(ids: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return the driver and the query of runs by id; without those that have no row."""
    found: dict[int, tuple[int, int]] = {}
    for some in _slices(ids):
        rows = Run.objects.filter(pk__in=some).values_list("pk", "driver_id", "query_id")
        found |= {pk: (driver, query) for pk, driver, query in rows}
    return found


def living() -> dict[int, int]:
    """Return the epochs of the drivers that may send now, by id."""
    rows = Driver.objects.filter(state__in=sorted(OPEN_DRIVER_STATES), seals_events=True)
    return dict(rows.values_list("pk", "epoch"))


def _slices(ids: Collection[int]) -> Iterator[list[int]]:
    ordered = sorted(ids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]
