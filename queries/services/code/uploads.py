"""Accept uploaded code."""

from datetime import datetime
from typing import IO

from django.conf import settings
from django.db import transaction

from queries.domain.access.acts import Act
from queries.models.applications import UploadedCode
from queries.models.installation import Installation
from queries.services.access.audit_trail import record_act
from queries.services.access.rate_limits import allow_upload
from queries.services.code.unpacking import unpack


def take_upload(
    archive: IO[bytes], *, module: str = "", actor: str, now: datetime
) -> tuple[UploadedCode, bool]:
    """Store an archive's files by content hash; return the row, and whether it is new.

    If `module` is set, the upload is one Python file with this name; "" means an archive. Raises
    `Invalid` for an invalid archive, without keeping any of it, and `TooMany` if the actor uploads
    too often.
    """
    allow_upload(actor=actor, now=now)
    code = unpack(archive, module=module)
    with transaction.atomic():
        allow_upload(actor=actor, now=now)  # others may have uploaded while it was unpacked
        Installation.lock()  # pruning deletes rows under this lock
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
