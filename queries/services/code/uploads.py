"""Take code that somebody uploads, and let go of what nobody names."""

import logging
import shutil
import tempfile
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import transaction

from listeners.loops.troubles import each
from queries.domain.access.acts import Act
from queries.domain.code.digests import named
from queries.files import read_file
from queries.models.applications import ApplicationRevision, UploadedCode
from queries.models.drivers import Driver, Run
from queries.models.installation import Installation
from queries.services.access.audit_trail import record_act
from queries.services.code.unpacking import DRAFT, unpack

logger = logging.getLogger(__name__)
_each = each("uploads", logger)

#: Uploads that one run of the task looks at.
_LOOKED_AT = 500
#: A draft that is older was left by a process that died.
_DRAFT_LIVES_S = 24 * 3600


def take_upload(archive: IO[bytes], *, actor: str, now: datetime) -> tuple[UploadedCode, bool]:
    """Keep an archive's files by their content; return the row, and whether it is new.

    Raises `Invalid` with the fault of a bad archive; nothing of it is kept then.
    """
    code = unpack(archive)
    with transaction.atomic():
        row, made = UploadedCode.objects.get_or_create(
            sha256=code.sha256,
            defaults={
                "files": code.files,
                "bytes": code.bytes,
                "uploaded_at": now,
                "uploaded_by": actor,
                "host": settings.HEADGATE_HOST,
            },
        )
        if not made:
            host = settings.HEADGATE_HOST
            UploadedCode.objects.filter(pk=row.pk).update(uploaded_at=now, host=host)
        about = {"files": code.files, "bytes": code.bytes}
        record_act(Act.CODE_UPLOADED, actor=actor, now=now, subject=row.digest, **about)
    return row, made


def prune_uploads(*, now: datetime) -> int:
    """Delete this host's uploads that no revision has named for some days; return how many."""
    before = now - timedelta(days=settings.UPLOAD_DAYS)
    old = UploadedCode.objects.filter(uploaded_at__lt=before, host=settings.HEADGATE_HOST)
    removed = 0
    for row in old.order_by("uploaded_at")[:_LOOKED_AT]:
        with _each.by_itself(f"upload {row.digest[:19]}"):
            removed += _let_go(row, before)
    for folder in (settings.CODE_DIR, settings.PACKAGES_DIR):
        for draft in Path(folder).glob(f"{DRAFT}*"):
            with _each.by_itself(f"draft {draft.name}"), suppress(FileNotFoundError):
                if now.timestamp() - draft.stat().st_mtime > _DRAFT_LIVES_S:
                    shutil.rmtree(draft, ignore_errors=True)
    return removed


def _is_from_git(sha256: str) -> bool:
    """Return whether a commit of git has given the same files."""
    notes = (Path(settings.CODE_DIR) / "git").glob("*")
    return any(read_file(note, 64) == sha256 for note in notes if note.is_file())


def _let_go(row: UploadedCode, before: datetime) -> bool:
    """Delete an upload that nothing names; its files go only where nothing ran them either."""
    away: Path | None = None
    with transaction.atomic():
        # Definitions are saved under this lock: what is looked at now is not named meanwhile.
        Installation.get()
        Installation.objects.select_for_update().get(pk=1)
        if ApplicationRevision.objects.filter(spec__code__upload=row.digest).exists():
            return False
        deleted, _ = UploadedCode.objects.filter(pk=row.pk, uploaded_at__lt=before).delete()
        if not deleted:
            return False
        ran = Driver.objects.filter(code_sha256=row.sha256).exists()
        ran = ran or Run.objects.filter(code_sha256=row.sha256).exists()
        if ran or _is_from_git(row.sha256):
            return True
        place = Path(settings.CODE_DIR) / row.sha256
        if place.is_dir():
            away = Path(tempfile.mkdtemp(prefix=DRAFT, dir=settings.CODE_DIR))
            place.rename(away / row.sha256)
    if away is not None:
        shutil.rmtree(away, ignore_errors=True)
    logger.info("deleted code %s, which no revision names", named(row.sha256)[:19])
    return True
