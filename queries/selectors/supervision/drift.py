"""Compare what a live driver was launched with to the application's current definition.

A driver keeps its configuration, pools and code until it is replaced; if they differ, the pages and
the API say that the application needs a restart, and why.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, Subquery

from listeners.loops.troubles import loop_errors
from queries.code_roots import digest_on_disk
from queries.domain.definitions.effects import strongest
from queries.domain.definitions.parsing import application_changes
from queries.domain.definitions.spec import ApplicationSpec
from queries.models.applications import ApplicationRevision, SchedulerPool
from queries.models.drivers import Driver
from queries.selectors.code import roots_of
from queries.selectors.release import release

REVISION = "revision"
POOLS = "pools"
CODE = "code"
RELEASE = "Headgate's release"
UNREADABLE = "a stored definition that cannot be read"

_loop = loop_errors("drift", logging.getLogger(__name__))


def newest_application_revisions(application_ids: Iterable[int]) -> dict[int, ApplicationRevision]:
    """Return each application's newest revision, in one database query."""
    newest = ApplicationRevision.objects.filter(application=OuterRef("application"))
    rows = ApplicationRevision.objects.filter(
        application__in=list(application_ids),
        pk=Subquery(newest.order_by("-number").values("pk")[:1]),
    )
    return {row.application_id: row for row in rows}


def pools_of(application_ids: Iterable[int]) -> dict[int, list[SchedulerPool]]:
    """Return each application's pools by name, in one database query."""
    pools: dict[int, list[SchedulerPool]] = {}
    rows = SchedulerPool.objects.filter(application__in=list(application_ids))
    for pool in rows.order_by("application", "name"):
        pools.setdefault(pool.application_id, []).append(pool)
    return pools


def drift(
    driver: Driver | None,
    *,
    newest: ApplicationRevision | None,
    pools: Sequence[SchedulerPool],
) -> tuple[str, ...]:
    """Return a driver's differences from its definition, the code on disk, or our release.

    An unreadable stored form is reported as one difference, so that lists still work.
    """
    if driver is None or newest is None:
        return ()
    with _loop.isolate_errors(f"what driver number {driver.pk} was launched with"):
        return _drift(driver, newest=newest, pools=pools)
    return (UNREADABLE,)


def _drift(
    driver: Driver, *, newest: ApplicationRevision, pools: Sequence[SchedulerPool]
) -> tuple[str, ...]:
    differences = []
    # The launched revision is read only if it is a different one.
    if driver.application_revision_id != newest.pk and strongest(
        application_changes(driver.application_revision.spec, newest.spec)
    ):
        differences.append(REVISION)
    if _as_set(driver.pools) != _as_set(pool_form(pool) for pool in pools):
        differences.append(POOLS)
    if _code_differs(driver):
        differences.append(CODE)
    if driver.release not in ("", release()):
        differences.append(RELEASE)
    return tuple(differences)


def _code_differs(driver: Driver) -> bool:
    """Return whether the driver's code roots have changed; False if that cannot be determined."""
    if driver.host != settings.HEADGATE_HOST:
        return False  # its code is on another host
    spec = ApplicationSpec.model_validate(driver.application_revision.spec)
    roots = roots_of(spec) if spec.python_path else None
    now = digest_on_disk(roots) if roots else None
    return now is not None and now != driver.code_sha256


def pool_form(pool: SchedulerPool) -> dict[str, Any]:
    """Return a pool in the JSON form of `PoolSpec`."""
    return {
        "name": pool.name,
        "weight": pool.weight,
        "min_share": pool.min_share,
        "mode": pool.mode,
    }


def _as_set(pools: Iterable[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {
        (pool["name"], pool.get("weight", 1), pool.get("min_share", 0), pool.get("mode", "FAIR"))
        for pool in pools
    }
