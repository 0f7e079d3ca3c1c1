"""The ASGI entry point, served by uvicorn."""

import os
from typing import Any

from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured

os.umask(0o077)  # as in manage.py
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django: Any = get_asgi_application()

from django.conf import settings  # noqa: E402
from django.urls import reverse  # noqa: E402

if settings.SECRET_KEY_IS_EPHEMERAL:
    raise ImproperlyConfigured(
        "SECRET_KEY is not set, so users would not stay signed in. Set it to the same long "
        "random text for every process, or start with `make run`, which creates one."
    )

from installation.web.front import bounded, served  # noqa: E402
from queries.services.system.writes import keep_readable  # noqa: E402
from queries.views.console.live import below_django  # noqa: E402

keep_readable()
#: Django and the API limit forms and bodies, with better messages; no request needs more than this.
application = served(
    below_django(
        bounded(
            django,
            most=4 * settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
            larger={reverse("api:code"): settings.CODE_UPLOAD_MOST_BYTES},
        )
    ),
    trusted=settings.TRUSTED_PROXIES,
)
