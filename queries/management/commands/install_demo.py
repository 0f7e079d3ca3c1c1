"""Create the demo's applications and queries once, through the same services as users' requests."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from examples.flights import definitions, feeder, kafka_definitions, s3_definitions, topics
from queries.domain.errors import HeadgateError
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import AuthorRights
from queries.services import secrets
from queries.services.definitions import catalog
from queries.services.supervision import operations

ACTOR = "demo"


class Command(BaseCommand):
    """Install the missing parts of the demo; skip those that exist or were deleted."""

    help = (
        "Create and start the demo's applications and queries, skipping those that already exist."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options for the trial servers."""
        parser.add_argument(
            "--kafka",
            default="",
            metavar="SERVERS",
            help="also create the Kafka demo, on this broker",
        )
        parser.add_argument(
            "--s3",
            default="",
            metavar="ENDPOINT",
            help="also create the demo on S3, on this gateway",
        )

    def handle(self, *args: Any, kafka: str, s3: str, **options: Any) -> None:
        """Create the definitions, and start the queries that have never been started."""
        demo = settings.HEADGATE_HOME / "demo"
        _make_folders(demo)
        now = datetime.now(UTC)
        made: list[str] = []
        refused: list[str] = []
        applications, queries = definitions.applications(), definitions.queries(demo)
        if kafka:
            applications += kafka_definitions.applications()
            queries += kafka_definitions.queries(kafka)
            applications += kafka_definitions.async_applications()
            queries += kafka_definitions.async_queries(kafka, demo)
            try:
                topics.create(kafka)
            except KafkaException as error:
                refused.append(f"the topics on {kafka}: {error.args[0].str()}")
        if s3:
            applications += s3_definitions.applications(s3)
            queries += s3_definitions.queries(demo)
        for application in applications:
            try:
                _make_application(application, now)
            except HeadgateError as error:
                refused.append(f"application {application.name}: {error}")
        for query in queries:
            try:
                if _make_query(query, now):
                    made.append(query.name)
            except HeadgateError as error:
                refused.append(f"{query.name}: {error}")
        if made:
            self.stdout.write(f"Created the demo's queries: {', '.join(made)}")
        if refused:
            raise CommandError("; ".join(refused))


def _make_folders(demo: Path) -> None:
    """Create the flights' folders and an output folder."""
    feeder.prepare(demo / "flights")
    (demo / "out").mkdir(parents=True, exist_ok=True)


def _make_application(demo: definitions.DemoApplication, now: datetime) -> None:
    if Application.objects.filter(name=demo.name).exists():
        return
    for root in demo.roots:
        secrets.give_root({"application": demo.name, "path": root}, actor=ACTOR, now=now)
    for secret, hosts in demo.secrets.items():
        binding = {"secret": secret, "holder": demo.name, "hosts": hosts}
        secrets.bind(binding, actor=ACTOR, now=now)
    application = catalog.create_application(
        name=demo.name, spec=demo.spec, actor=ACTOR, now=now, rights=AuthorRights.ALL
    )
    for pool in demo.pools:
        catalog.save_pool(application=application, spec=pool, actor=ACTOR, now=now)


def _make_query(demo: definitions.DemoQuery, now: datetime) -> bool:
    """Create and start a query; return whether it did not exist before."""
    query = Query.objects.filter(name=demo.name).first()
    made = query is None
    if query is None:
        query = catalog.create_query(
            name=demo.name,
            spec=demo.spec,
            actor=ACTOR,
            now=now,
            application=demo.application,
            application_spec=demo.application_spec,
            checkpoint=demo.checkpoint,
            rights=AuthorRights.ALL,
        )
    # Generation 0: nobody has started it yet, so the first installation was interrupted.
    if demo.start and query.generation == 0 and query.archived_at is None:
        operations.request_start(query=query, actor=ACTOR, now=now)
    return made
