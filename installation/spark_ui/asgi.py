"""The ASGI entry point of the Spark UI server, served by uvicorn on its own port."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()  # for the tables; no console page is served here

from django.conf import settings  # noqa: E402
from django.core.exceptions import ImproperlyConfigured  # noqa: E402

if settings.SECRET_KEY_IS_EPHEMERAL:
    raise ImproperlyConfigured(
        "SECRET_KEY is not set; drivers' keys are derived from the web process's key."
    )

from installation.spark_ui import proxy  # noqa: E402

application = proxy.application()
