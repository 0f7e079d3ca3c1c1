"""Try another Spark on copies of the checkpoints of all queries of an application."""

from datetime import datetime

from queries.domain.errors import NotAllowed
from queries.domain.sparks import Spark
from queries.models.applications import Application
from queries.models.history import Operation
from queries.services.definitions.catalog import plan_application
from queries.services.probes.preflight import begin_trial, with_spark


def begin_spark_trials(
    *, application: Application, spark: Spark, actor: str, now: datetime, python: bool
) -> list[Operation]:
    """Begin a preflight of each query's newest revision with another Spark.

    Raises `Invalid` if the application could not be saved with it, and `NotAllowed` if the
    application has no query that a preflight can try: a script starts its own.
    """
    spec = with_spark(application, spark)
    plan_application(application=application, spec=spec, python=python)
    living = application.queries.filter(archived_at=None).order_by("name")
    operations = [
        begin_trial(
            query=query,
            spec=query.revisions.order_by("-number")[0].spec,
            application_spec=spec,
            actor=actor,
            now=now,
        )
        for query in living
        if not query.discovered
    ]
    if not operations:
        raise NotAllowed(
            f"{application.name} has no query that a preflight can try.",
            way_out="Change its Spark without preflights; take snapshots first.",
        )
    return operations
