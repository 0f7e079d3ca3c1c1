"""What a script's driver has asked: which query came, and which it may be."""

from dataclasses import dataclass

from django.db.models import QuerySet

from queries.domain.scripts.questions import called
from queries.models.applications import Script
from queries.models.definitions import Query


@dataclass(frozen=True, slots=True)
class Asking:
    """A question as pages and the API show it."""

    identity: str
    query: str  # how a sentence names the one that came
    checkpoint: str  # that the script names for it, "" for none
    missing: list[str]  # names of the queries that the script has not started


def asked_about(script: Script) -> QuerySet[Query]:
    """Return the living queries that the one which came may be, by name."""
    living = Query.objects.filter(application=script.application_id, archived_at=None)
    return living.filter(pk__in=script.question.get("missing", ())).order_by("name")


def asking(script: Script | None) -> Asking | None:
    """Return what the script's driver has asked; None for nothing."""
    if script is None or not script.question:
        return None
    held = script.question
    return Asking(
        identity=held["identity"],
        query=called(held["name"], held["asked"]),
        checkpoint=held["asked"],
        missing=[query.name for query in asked_about(script)],
    )
