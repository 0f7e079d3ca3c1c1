"""The app that records drivers' events."""

from django.apps import AppConfig


class ListenersConfig(AppConfig):
    """Events from drivers: stored once, gaps counted, repaired, rolled up."""

    name = "listeners"
    default_auto_field = "django.db.models.BigAutoField"
