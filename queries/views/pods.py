"""The channel of drivers' pods: their files upwards; archives, and what is wanted of them, down.

No user and no session is involved: a request proves by its token that it comes from the pod of one
driver and one epoch, and reaches only that driver's folder. The pod's end is
`queries.launchers.pods.agent`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec

from asgiref.sync import sync_to_async
from django.db import connection
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    StreamingHttpResponse,
)
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods

from headgate_ground.tolerant import whole
from queries.launchers.pods.layout import (
    GROWING,
    MOST_OF_PART,
    MOST_OF_WHOLE,
    POLL_S,
    UID_HEADER,
    WHOLE,
    News,
)
from queries.services import pod_channel
from queries.services.pod_channel import OtherSize, Pod, TooLarge

#: Seconds between looks at the files behind the news, and at the driver's row.
FILES_EVERY_S, ROW_EVERY_S = 0.25, 2.0
CHUNK = 256 * 1024  # bytes of an archive at once
_BEARER = re.compile(r"Bearer ([0-9a-f]{1,200})")

Arguments = ParamSpec("Arguments")


def _admitted(request: HttpRequest, epoch: int) -> Pod | None:
    bearer = _BEARER.fullmatch(request.headers.get("Authorization", ""))
    if bearer is None:
        return None
    uid = request.headers.get(UID_HEADER, "")
    return pod_channel.admit(epoch, token=bearer.group(1), uid=uid)


def _unknown() -> HttpResponse:
    """Answer a request without the right token; it does not learn whether there is a driver."""
    headers = {"WWW-Authenticate": "Bearer"}
    return HttpResponse("This token is not valid here.", status=401, headers=headers)


def _over() -> HttpResponse:
    return HttpResponse("This driver has ended.", status=410)


def _for_pods(
    view: Callable[Concatenate[HttpRequest, Pod, Arguments], HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Call the view with the pod that the request comes from, while its files are accepted."""

    @csrf_exempt
    @wraps(view)
    def checked(
        request: HttpRequest, epoch: int, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> HttpResponseBase:
        pod = _admitted(request, epoch)
        if pod is None:
            return _unknown()
        return view(request, pod, *args, **kwargs) if pod.sends else _over()

    return checked


# --- downwards ------------------------------------------------------------------------


@csrf_exempt
async def news(request: HttpRequest, epoch: int) -> HttpResponse:
    """Answer with `News`: at once if the pod does not know them, else after at most `POLL_S`."""
    if request.method != "GET":
        return HttpResponse(status=405, headers={"Allow": "GET"})
    seen = request.GET.get("seen", "")
    clock = asyncio.get_running_loop().time
    ends = clock() + POLL_S
    while True:
        marks, found = await sync_to_async(_look)(request, epoch)
        if isinstance(found, HttpResponse):
            return found
        pod, wanted = found
        if wanted.digest != seen or clock() >= ends:
            return HttpResponse(wanted.dumps(), content_type="application/json")
        again = min(ends, clock() + ROW_EVERY_S)
        while clock() < again and pod_channel.marks(pod) == marks:
            await asyncio.sleep(min(FILES_EVERY_S, max(0.0, again - clock())))


def _look(
    request: HttpRequest, epoch: int
) -> tuple[tuple[object, ...], HttpResponse | tuple[Pod, News]]:
    """Return the marks of the files, and the pod with its news or the answer that it gets.

    The connection to the database is closed: every pod waits here nearly all the time.
    """
    try:
        pod = _admitted(request, epoch)
    finally:
        if not connection.in_atomic_block:
            connection.close()
    if pod is None:
        return (), _unknown()
    if not pod.wanted:
        return (), _over()
    marks = pod_channel.marks(pod)  # first: a change after that is found
    return marks, (pod, pod_channel.news_for(pod))


@_for_pods
@require_GET
def archive(request: HttpRequest, pod: Pod, sha256: str) -> HttpResponseBase:
    """Send one of the files that the launcher has listed for this driver."""
    file = pod_channel.archive_of(pod, sha256)
    try:
        size = file.stat().st_size if file is not None else None
    except FileNotFoundError:
        size = None
    if file is None or size is None:
        return HttpResponse("There is no such archive for this driver.", status=404)
    return StreamingHttpResponse(
        _parts(file),
        content_type="application/octet-stream",
        headers={"Content-Length": str(size)},
    )


async def _parts(path: Path) -> AsyncIterator[bytes]:
    """Yield a file's content; Django would read all of a file into memory first."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


# --- upwards --------------------------------------------------------------------------


@_for_pods
@require_http_methods(["PUT"])
def file(request: HttpRequest, pod: Pod, name: str) -> HttpResponseBase:
    """Accept a file of the driver, whole or in parts, depending on its name."""
    if name in WHOLE:
        return _accepted(lambda: pod_channel.accept_whole(pod, name, _body(request, MOST_OF_WHOLE)))
    at = whole(request.GET.get("at", ""))
    if name not in GROWING:
        return _no_such_file()
    if at is None:
        return _no_offset()
    return _accepted(lambda: pod_channel.accept_part(pod, name, at, _body(request, MOST_OF_PART)))


@_for_pods
@require_http_methods(["PUT", "DELETE"])
def segment(request: HttpRequest, pod: Pod, name: str) -> HttpResponseBase:
    """Accept a part of a segment of the driver's spool, or remove the segment."""
    if not pod_channel.SEGMENT.fullmatch(name):
        return _no_such_file()
    if request.method == "DELETE":
        return _accepted(lambda: pod_channel.drop_segment(pod, name))
    at = whole(request.GET.get("at", ""))
    if at is None:
        return _no_offset()
    body = _body(request, MOST_OF_PART)
    return _accepted(lambda: pod_channel.accept_segment(pod, name, at, body))


def _body(request: HttpRequest, most: int) -> bytes:
    """Return the body, of which at most one byte more than the limit is read."""
    data: bytes = request.read(most + 1)
    return data


def _accepted(accept: Callable[[], None]) -> HttpResponse:
    """Return the answer to a file: 409 has the size that the file has here."""
    try:
        accept()
    except OtherSize as other:
        return JsonResponse({"size": other.size}, status=409)
    except TooLarge:
        return HttpResponse("This file is too large.", status=413)
    except OSError as error:  # a full disk, or the folder is away: the pod tries again
        return HttpResponse(f"The file cannot be stored: {error.strerror}.", status=503)
    return HttpResponse(status=204)


def _no_such_file() -> HttpResponse:
    return HttpResponse("No file with this name is accepted.", status=404)


def _no_offset() -> HttpResponse:
    return HttpResponse("Name the offset of this part: ?at=0.", status=400)


urlpatterns = [
    path("pods/<int:epoch>/news", news, name="pod-news"),
    path("pods/<int:epoch>/archives/<str:sha256>", archive, name="pod-archive"),
    path("pods/<int:epoch>/files/<str:name>", file, name="pod-file"),
    path("pods/<int:epoch>/files/spool/<str:name>", segment, name="pod-segment"),
]
