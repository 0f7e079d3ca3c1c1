"""Compare what a living driver was launched with to what its application defines now.

A driver keeps its configuration, pools and code until it is replaced; where they differ the
pages and the API say that the application needs a restart, and why.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, Subquery

from queries.code_roots import digest_on_disk
from queries.domain.definitions.spec import ApplicationSpec
from queries.models.applications import ApplicationRevision, SchedulerPool
from queries.models.drivers import Driver
from queries.selectors.code import roots_of

REVISION = "revision"
POOLS = "pools"
CODE = "code"


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
    found: dict[int, list[SchedulerPool]] = {}
    rows = SchedulerPool.objects.filter(application__in=list(application_ids))
    for pool in rows.order_by("application", "name"):
        found.setdefault(pool.application_id, []).append(pool)
    return found


def drift(
    driver: Driver | None,
    *,
    newest: ApplicationRevision | None,
    pools: Sequence[SchedulerPool],
) -> tuple[str, ...]:
    """Return what a driver has that differs from its application's definition or code on disk."""
    if driver is None or newest is None:
        return ()
    found = []
    if driver.application_revision_id != newest.pk:
        found.append(REVISION)
    if _as_set(driver.pools) != _as_set(pool_form(pool) for pool in pools):
        found.append(POOLS)
    if _code_differs(driver):
        found.append(CODE)
    return tuple(found)


def _code_differs(driver: Driver) -> bool:
    """Return whether the driver's code roots have changed; False where that cannot be known."""
    if driver.host != settings.HEADGATE_HOST:
        return False  # its code is on its own host
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
