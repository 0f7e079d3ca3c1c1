"""The Django app that makes Headgate's decisions and acts on them."""

from importlib import import_module

from django.apps import AppConfig
from django.urls import converters, register_converter


class QueryName(converters.StringConverter):
    """A query's name in a URL: the slash in `application/query` is written as `~`."""

    def to_python(self, value: str) -> str:
        """Return the name."""
        return value.replace("~", "/")

    def to_url(self, value: str) -> str:
        """Return the part of the URL."""
        return value.replace("/", "~")


class QueriesConfig(AppConfig):
    """Definitions, operations and supervision of streaming queries."""

    name = "queries"
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Register the models from their own modules below an empty package."""
        for module in (
            "access.accounts",
            "applications",
            "definitions",
            "drivers",
            "history",
            "checkpoints",
            "deploys",
            "alerts",
            "schedules",
            "grants",
            "catalogs",
            "access.audit",
        ):
            import_module(f"queries.models.{module}")
        super().import_models()

    def ready(self) -> None:
        """Connect the handlers for migrations and sign-ins: roles, audit log."""
        register_converter(QueryName, "query")
        import_module("queries.roles").connect()
        import_module("queries.releases").connect(self)
        import_module("queries.models.access.audit").connect(self)
        import_module("queries.services.access.sign_ins").connect()
