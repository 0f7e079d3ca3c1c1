"""Read the questions of scripts' drivers, and find script queries whose checkpoints moved."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, OuterRef, QuerySet, Subquery

from queries.domain.scripts.questions import called
from queries.models.applications import Script
from queries.models.definitions import Checkpoint, Query


@dataclass(frozen=True, slots=True)
class Asking:
    """A question, in the form that pages and the API use."""

    identity: str
    query: str  # the new query's name, for messages
    checkpoint: str  # named by the script, "" if none
    missing: list[str]  # names of queries that the script has not started


def candidate_queries(script: Script) -> QuerySet[Query]:
    """Return the existing queries that the new one may be, by name."""
    living = Query.objects.filter(application=script.application_id, archived_at=None)
    return living.filter(pk__in=script.question.get("missing", ())).order_by("name")


def asking(script: Script | None) -> Asking | None:
    """Return the question of the script's driver; None if there is none."""
    if script is None or not script.question:
        return None
    question = script.question
    return Asking(
        identity=question["identity"],
        query=called(question["name"], question["asked"]),
        checkpoint=question["asked"],
        missing=[query.name for query in candidate_queries(script)],
    )


@dataclass(frozen=True, slots=True)
class MovedCheckpoint:
    """A query that a script has started on a different checkpoint than before."""

    query: int  # primary key
    name: str
    application: int  # primary key
    before: str  # locations
    now: str

    @property
    def text(self) -> str:
        """Return sentences that explain what happened and what it means."""
        return (
            f"The checkpoint of {self.name} was {self.before}, and is now {self.now}. Its "
            "state starts empty, and rows that were read before are read again or skipped. To "
            "continue from the old checkpoint, use the same checkpointLocation in the script at "
            "each start."
        )


def moved_checkpoints(*, since: datetime) -> Iterator[MovedCheckpoint]:
    """Yield queries whose checkpoint has since been moved by their script itself.

    Moves by a rewind or a reset are reported elsewhere. Temporary checkpoints do not count: they
    are emptied at each start, wherever they are.
    """
    left = Checkpoint.objects.filter(query=OuterRef("query"), retired_at=OuterRef("created_at"))
    rows = Checkpoint.objects.filter(
        retired_at=None, built_from=None, created_at__gte=since, query__temporary=""
    ).exclude(query__identity="")
    rows = rows.annotate(before=Subquery(left.values("location")[:1])).exclude(before=None)
    moved = rows.order_by("query__name").values_list(
        "query", "query__name", "query__application", "before", "location"
    )
    for row in moved.exclude(before=F("location")):
        yield MovedCheckpoint(*row)
