"""List the Spark versions on this host with their checksums, or remove one."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from headgate_server import downloads
from queries.domain.errors import HeadgateError
from queries.domain.sparks import SPARKS
from queries.management.commands.connector import checked
from queries.selectors.definitions.sparks import is_set_up, spark_users
from queries.selectors.spark_folders import folder_of, installed_sparks
from queries.services.downloads import remove_spark


class Command(BaseCommand):
    """List or remove Spark versions; `headgate-server spark add` installs them."""

    help = "List the Spark versions on this host and check their jars, or remove one."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare `list` and `remove VERSION`."""
        acts = parser.add_subparsers(dest="act", required=True)
        acts.add_parser("list", help="list the versions, check their jars, and show their users")
        remove = acts.add_parser("remove", help="remove an unused version")
        remove.add_argument("version", choices=SPARKS)

    def handle(self, *args: Any, act: str, **options: Any) -> None:
        """Carry out one of them."""
        if act == "list":
            self._list()
            return
        try:
            remove_spark(options["version"], actor="headgate-server", now=timezone.now())
        except HeadgateError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Removed Spark {options['version']}.")

    def _list(self) -> None:
        users = spark_users() if is_set_up() else []
        installed_versions = installed_sparks()
        for spark in reversed(SPARKS):
            using = ", ".join(str(user) for user in users if user.spark == spark) or "nothing"
            folder = folder_of(spark)
            if folder is None:
                self.stdout.write(f"Spark {spark}: Headgate's own, used by {using}")
            elif spark not in installed_versions:
                self.stdout.write(f"Spark {spark}: not installed, used by {using}")
            else:
                self.stdout.write(f"Spark {spark}: in {folder}, used by {using}")
                for line in checked(folder / downloads.SPARK_JARS):
                    self.stdout.write(f"  {line}")
