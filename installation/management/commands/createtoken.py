"""Create an API token from the command line, for scripts that set up CI."""

from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from queries.domain.errors import Invalid
from queries.models.access.accounts import Scope
from queries.services.access.tokens import DEFAULT_DAYS, DEFAULT_SCOPE, create_token


class Command(BaseCommand):
    """Print a new token for a user, and nothing else."""

    help = "Print a new API token for USER, and nothing else. It cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the user, the token's name, its limits and its lifetime."""
        parser.add_argument("user", metavar="USER")
        parser.add_argument("--name", default="command line", help="what the token is for")
        parser.add_argument("--scope", choices=[*Scope], default=DEFAULT_SCOPE, help="its scope")
        parser.add_argument(
            "--team", default="", help=("limit the token to this team's applications")
        )
        parser.add_argument(
            "--application",
            action="append",
            default=[],
            metavar="NAME",
            help="limit the token to this application; repeatable",
        )
        parser.add_argument(
            "--days", type=int, default=DEFAULT_DAYS, help=("days until the token expires")
        )

    def handle(self, *args: Any, user: str, name: str, days: int, **options: Any) -> None:
        """Create the token; raise `CommandError` if the user or a value is invalid."""
        users = get_user_model()
        owner = users.objects.filter(**{users.USERNAME_FIELD: user, "is_active": True}).first()
        if owner is None:
            names = ", ".join(users.objects.values_list(users.USERNAME_FIELD, flat=True)[:20])
            raise CommandError(
                f"There is no active user {user!r}. Choose one of: {names or 'none'}."
            )
        try:
            _, text = create_token(
                user=owner,
                name=name,
                actor="createtoken",
                days=days,
                scope=options["scope"],
                team=options["team"],
                applications=options["application"],
                now=timezone.now(),
            )
        except Invalid as error:
            raise CommandError(str(error)) from error
        self.stdout.write(text)
