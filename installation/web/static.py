"""Serve the vendored static files under ASGI without a proxy in front."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise with responses that are not streamed.

    WhiteNoise's own responses iterate over the file in a way that Django cannot stream under ASGI:
    Django would warn about each file, and still read it completely.
    """

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """Return the file (or "not modified", or the requested range) as one response."""
        answer = static_file.get_response(request.method, request.META)
        content = b""
        if answer.file is not None:
            with answer.file as file:
                content = file.read()
        response = HttpResponse(content, status=int(answer.status))
        del response["content-type"]
        for name, value in answer.headers:
            response[name] = value
        return response
