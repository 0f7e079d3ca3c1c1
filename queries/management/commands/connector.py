"""List the connectors of this host with their checksums, or remove one."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from headgate_server import downloads
from queries.domain.errors import HeadgateError
from queries.domain.readings import counted
from queries.domain.sparks import OURS, SPARKS
from queries.selectors.definitions.definitions import folder_for, jars_of, ready_connectors
from queries.selectors.definitions.sparks import is_set_up, spark_users
from queries.services.downloads import remove_connector


class Command(BaseCommand):
    """List or remove connectors; `headgate-server connector add` installs them."""

    help = "List the connectors of this host and check their jars, or remove one."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare `list` and `remove NAME`."""
        acts = parser.add_subparsers(dest="act", required=True)
        acts.add_parser("list", help="list the connectors, check their jars, and show their users")
        remove = acts.add_parser("remove", help="remove an unused connector")
        remove.add_argument("name")
        remove.add_argument("--spark", default=OURS, choices=SPARKS, help="Spark version")

    def handle(self, *args: Any, act: str, **options: Any) -> None:
        """Carry out one of them."""
        if act == "list":
            self._list()
            return
        try:
            name, spark = options["name"], options["spark"]
            remove_connector(name, spark, actor="headgate-server", now=timezone.now())
        except HeadgateError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Removed the connector {name} for Spark {spark}.")

    def _list(self) -> None:
        users = spark_users() if is_set_up() else []
        any_installed = False
        for spark in reversed(SPARKS):
            for name in sorted(ready_connectors(spark)):
                any_installed = True
                jars = jars_of(name, spark)
                size = sum(jar.stat().st_size for jar in jars) / 1e6
                using = [u for u in users if u.spark == spark and name in u.connectors]
                used = ", ".join(map(str, using)) or "nothing"
                self.stdout.write(
                    f"{name} for Spark {spark}: {counted(len(jars), 'jar')}, {size:.0f} MB, "
                    f"used by {used}"
                )
                for line in checked(folder_for(spark) / name):
                    self.stdout.write(f"  {line}")
        if not any_installed:
            self.stdout.write("No connectors are installed.")


def checked(folder: Any) -> list[str]:
    """Return the result of a check of a folder's jars, which reads all of them."""
    if not (folder / downloads.SUMS).exists():
        return ["It has no checksums: it was installed by hand, or by an older release."]
    return downloads.differing(folder) or ["All jars match what was downloaded."]
