"""The app that decides and acts."""

from importlib import import_module

from django.apps import AppConfig


class QueriesConfig(AppConfig):
    """Definitions, operations and supervision of streaming queries."""

    name = "queries"
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Register the models, which live in modules of their own below an empty package."""
        for module in (
            "installation",
            "access.teams",
            "hosts",
            "applications",
            "definitions",
            "drivers",
            "failures",
            "history",
            "checkpoints",
            "tokens",
            "alerts",
            "saved_views",
            "access.group_roles",
            "grants",
            "access.audit_trail",
            "access.sessions",
        ):
            import_module(f"queries.models.{module}")
        super().import_models()

    def ready(self) -> None:
        """Register the roles' rules and groups, what keeps the audit log, and drivers' accounts."""
        import_module("queries.roles").connect()
        import_module("queries.models.access.audit_guard").connect(self)
        import_module("queries.services.access.sign_ins").connect()
        import_module("queries.launchers.process.walls.proven").connect()
