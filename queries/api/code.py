"""Code over REST: uploads under their digest, and the git hosts that admins allow."""

import re
from typing import IO, Any, cast

from django.conf import settings
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser
from rest_framework.response import Response

from queries.api import errors
from queries.api.admin_objects import endpoints
from queries.api.base import ApiView, Streamed
from queries.api.bodies import Body, serializer_for
from queries.api.methods import answers, lists, word
from queries.domain.code.archives import sha256_of
from queries.domain.errors import Forbidden
from queries.models.applications import UploadedCode
from queries.models.grants import CodeHost
from queries.roles import DEFINE, WRITE_PYTHON, may
from queries.selectors.access import who_can_help
from queries.selectors.code import paths_of
from queries.selectors.rows import first_or_missing
from queries.services.code.git import GIT_HOSTS
from queries.services.code.uploads import take_upload


@serializer_for(CodeHost, "id=pk host given_at given_by")
class CodeHostBody(Body):
    """A git host from which definitions can take code.

    host: host or host:port for https, or ssh://host.
    """


urlpatterns = endpoints(GIT_HOSTS, CodeHostBody)


class TarParser(BaseParser):
    """Accept a tar stream; the code that reads it limits its size."""

    media_type = "application/x-tar"

    @classmethod
    def most(cls) -> int:
        """Return the maximum bytes of a body."""
        return int(settings.CODE_UPLOAD_MOST_BYTES)

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the stream."""
        return Streamed(stream, self.most())


class ZipParser(TarParser):
    """Accept a zip archive or a wheel."""

    media_type = "application/zip"


class WindowsZipParser(TarParser):
    """Accept a zip archive under the media type that Windows uses."""

    media_type = "application/x-zip-compressed"


class ModuleParser(TarParser):
    """Accept one Python file."""

    media_type = "text/x-python"


class GzipParser(TarParser):
    """Accept a gzipped tar."""

    media_type = "application/gzip"


class OldGzipParser(TarParser):
    """Accept a gzipped tar under the media type that older clients use."""

    media_type = "application/x-gzip"


def _paths(row: UploadedCode) -> list[str]:
    """Return the names of an upload's files, if they are stored on this host."""
    return paths_of(row.sha256)


@serializer_for(UploadedCode, "digest files bytes uploaded_at uploaded_by host")
class UploadBody(Body):
    """Uploaded code.

    digest: As written in a definition's code: sha256: and the digest of names and contents.
    bytes: Unpacked size.
    uploaded_at: Time of the latest upload; unreferenced code is deleted a few days later.
    host: The host that stores its files.
    """


@serializer_for(UploadedCode, "digest files bytes uploaded_at uploaded_by host paths", paths=_paths)
class UploadWithPathsBody(Body):
    """Uploaded code, with the names of its files.

    digest: As written in a definition's code: sha256: and the digest of names and contents.
    bytes: Unpacked size.
    uploaded_at: Time of the latest upload; unreferenced code is deleted a few days later.
    host: The host that stores its files.
    paths: The first 1,000 names; empty if this host does not store the files.
    """


class UploadsView(ApiView):
    """All uploaded code."""

    parser_classes = (
        TarParser,
        GzipParser,
        OldGzipParser,
        ZipParser,
        WindowsZipParser,
        ModuleParser,
    )

    @lists("list_code", UploadBody)
    def get(self) -> QuerySet[UploadedCode]:
        """List uploaded code, newest first."""
        return UploadedCode.objects.all()

    @answers(
        "upload_code",
        UploadWithPathsBody,
        role=DEFINE,
        parameters=[word("name", about="The file name, if the body is a single Python file.")],
        request=dict.fromkeys(
            ("application/x-tar", "application/gzip", "application/zip", "text/x-python"),
            OpenApiTypes.BINARY,
        ),
        responses={200: UploadWithPathsBody, 201: UploadWithPathsBody},
    )
    def post(self) -> Response:
        """Upload code: a tar, plain or gzipped, a zip, a wheel, or one Python file.

        Requires permission to write Python. An archive can contain up to 5,000 files and 50 MiB, no
        links, and no paths that lead out of it. If the code already exists, the response is 200.
        """
        stream = self._archive()
        module = self._module()
        if not may(self.request.user, WRITE_PYTHON):
            raise Forbidden(
                "You don't have permission to write Python, and uploaded code is Python.",
                way_out=f"Ask an admin ({who_can_help()}) to grant you that permission.",
            )
        row, made = take_upload(stream, module=module, **self.by)
        location = reverse("api:upload", args=[row.digest])
        headers = {"Location": location}
        return Response(UploadWithPathsBody(row).data, 201 if made else 200, headers=headers)

    def _module(self) -> str:
        """Return the name of the single uploaded file, or "" for an archive."""
        name, kind = self.query_param("name"), self.request.content_type.partition(";")[0].strip()
        if kind.lower() != ModuleParser.media_type:
            if name:
                way_out = f"Remove it, or send one file as {ModuleParser.media_type}."
                raise errors.invalid("name", name[:200], "does not apply to an archive.", way_out)
            return ""
        if not re.fullmatch(r"[^/]+\.py", name):
            message = "is not a Python file name." if name else "is missing."
            raise errors.invalid("name", name[:200], message, "Send ?name=job.py with the file.")
        return name

    def _archive(self) -> IO[bytes]:
        """Return the body; raise an error if it is empty or not an archive or Python file."""
        if not self.request.content_type:
            raise UnsupportedMediaType("")
        stream: Any = self.request.data
        if not isinstance(stream, Streamed):
            message, way_out = (
                "is empty.",
                "Send the archive or the file as the body, with its length.",
            )
            raise errors.invalid("archive", "", message, way_out)
        return cast(IO[bytes], stream)


class UploadView(ApiView):
    """One upload."""

    @answers("get_code", UploadWithPathsBody)
    def get(self, digest: str) -> UploadedCode:
        """Return uploaded code by its digest."""
        rows = UploadedCode.objects.filter(sha256=sha256_of(digest) or "")
        return first_or_missing(rows, f"Code {digest[:80]} does not exist.")
