"""Find failures that a full disk caused, and the file system that each of them means."""

import re
from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db.models import Q

from queries.domain.definitions.locations import NotALocation, canonical, local_path
from queries.domain.system import FULL_DISK
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Failure
from queries.selectors.hosts import fullest

#: "[Errno 28] No space left on device: '/data/out/x'", "/data/out/x: No space left on device".
_SIGN = "|".join(map(re.escape, FULL_DISK))
_PATH = re.compile(
    rf"(?:{_SIGN}): '?(/[^\s':]{{1,1000}})|(/[^\s':]{{1,1000}}):? \(?(?:{_SIGN})", re.IGNORECASE
)


def full_disk_failures(failures: Iterable[Failure]) -> set[int]:
    """Return which of these failures a full disk caused, in one database query at most."""
    ids = {failure.pk for failure in failures}
    if not ids:
        return set()
    condition = Q()
    for sign in FULL_DISK:
        condition |= Q(root_cause__icontains=sign) | Q(message__icontains=sign)
        condition |= Q(run=None, log_tail__icontains=sign)
    return set(Failure.objects.filter(condition, pk__in=ids).values_list("pk", flat=True))


def disk_text(failure: Failure, query: Query) -> tuple[str, str]:
    """Return where the full file system is mounted ("" if unknown), and sentences on it.

    The failure's figures are dated: space may have been freed since, which the current figures then
    show. Without a path in the failure, it is the fullest file system that the query writes to.
    """
    texts = (failure.root_cause, failure.message, failure.log_tail)
    named = next((match[1] or match[2] for text in texts if (match := _PATH.search(text))), "")
    written = [named] if named else list(dict.fromkeys(_written(query)))
    sentence = f"{FULL_DISK[0]} at {failure.at:%H:%M:%S} UTC"
    where = ", ".join(written) or "it is unknown where"
    if query.application.host not in ("", settings.HEADGATE_HOST):
        return "", f"{sentence}: {where}."
    disk = fullest(written)
    return (
        (disk.mount, f"{sentence}. Now, {disk.sentence}") if disk else ("", f"{sentence}: {where}.")
    )


def _written(query: Query) -> Iterator[str]:
    """Yield the local folders that a query writes to: its sink, its checkpoint, its driver's."""
    spec = query.target_revision.spec if query.target_revision else {}
    options = (spec.get("sink") or {}).get("options") or {}
    checkpoints = Checkpoint.objects.filter(query=query, retired_at=None).values_list(
        "location", flat=True
    )
    for text in (options.get("path"), *checkpoints):
        try:
            path = local_path(canonical(str(text or "")))
        except NotALocation:
            continue
        if path:
            yield path
    yield str(settings.HEADGATE_HOME)
