"""Code that is uploaded, kept by its content, and named by definitions."""

from typing import IO, Any, cast

from django.conf import settings
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser
from rest_framework.response import Response

from queries.api import errors
from queries.api.base import ApiView, Streamed
from queries.api.derived import Body, shows
from queries.api.methods import answers, lists
from queries.domain.code.digests import sha256_of
from queries.domain.errors import Forbidden
from queries.models.applications import UploadedCode
from queries.roles import DEFINE, WRITE_PYTHON, may
from queries.selectors.access.insisting import who_can_help
from queries.selectors.found import found
from queries.services.code.uploads import take_upload


class TarParser(BaseParser):
    """A tar as it comes: what reads it bounds it."""

    media_type = "application/x-tar"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the stream."""
        return Streamed(stream, settings.CODE_UPLOAD_MOST_BYTES)


class GzipParser(TarParser):
    """A tar by gzip."""

    media_type = "application/gzip"


class OldGzipParser(TarParser):
    """The same, by the name that older clients have for it."""

    media_type = "application/x-gzip"


@shows(UploadedCode, "digest files bytes uploaded_at uploaded_by host")
class UploadBody(Body):
    """Uploaded code.

    digest: What a definition names in its code: sha256: and the digest of names and contents.
    bytes: Unpacked.
    uploaded_at: The last time; what no definition names is deleted some days later.
    host: Which host has its files.
    """


class UploadsView(ApiView):
    """All uploaded code."""

    parser_classes = (TarParser, GzipParser, OldGzipParser)

    @lists("list_code", UploadBody)
    def get(self) -> QuerySet[UploadedCode]:
        """List uploaded code, newest first."""
        return UploadedCode.objects.all()

    @answers(
        "upload_code",
        UploadBody,
        role=DEFINE,
        request={
            "application/x-tar": OpenApiTypes.BINARY,
            "application/gzip": OpenApiTypes.BINARY,
        },
        responses={200: UploadBody, 201: UploadBody},
    )
    def post(self) -> Response:
        """Upload code as a tar, plain or by gzip; needs the right to write Python.

        Files and folders below the archive's own folder: no links, at most 50 MiB and 5,000 files.
        Code that is there already answers 200.
        """
        stream = self._archive()
        if not may(self.request.user, WRITE_PYTHON):
            raise Forbidden(
                "You may not write Python, and uploaded code is Python.",
                way_out=f"Ask an admin ({who_can_help()}) for the right.",
            )
        row, made = take_upload(stream, **self.by)
        location = reverse("api:upload", args=[row.digest])
        headers = {"Location": location}
        return Response(UploadBody(row).data, 201 if made else 200, headers=headers)

    def _archive(self) -> IO[bytes]:
        """Return the body; raise where it is of another kind, or empty."""
        if not self.request.content_type:
            raise UnsupportedMediaType("")
        stream: Any = self.request.data
        if not isinstance(stream, Streamed):
            message, way_out = "is empty.", "Send a tar as the body, with its length."
            raise errors.invalid("archive", "", message, way_out)
        return cast(IO[bytes], stream)


class UploadView(ApiView):
    """One upload."""

    @answers("get_code", UploadBody)
    def get(self, digest: str) -> UploadedCode:
        """Return uploaded code by its digest."""
        rows = UploadedCode.objects.filter(sha256=sha256_of(digest) or "")
        return found(rows, f"Code {digest[:80]} does not exist.")
