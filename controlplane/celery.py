"""The Celery application: short idempotent tasks, JSON only, a static beat schedule."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("headgate")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
