"""Recheck SQL that was saved while Spark's parser did not respond, and notify the author.

Revisions whose relations were not read when they were saved, such as those of earlier releases, are
read here too.
"""

import logging
from datetime import datetime

from django.db import transaction

from controlplane.nudge import changed
from listeners.loops.backlogs import loop_errors
from queries.domain.definitions.spec import SqlQuery
from queries.domain.definitions.sql_verdict import (
    REJECTED,
    SqlQuestion,
    SqlReads,
    SqlVerdict,
    refused,
)
from queries.domain.reasons import Because, Detail
from queries.domain.sparks import Spark
from queries.domain.validation.skipped import Check, as_json
from queries.models.definitions import QueryRevision
from queries.selectors.triggers.cores import newest_application_spec, parsed_or_none
from queries.services.changes import record
from queries.services.definitions.drafts import conf_of
from queries.services.definitions.sql_check import LONGEST, ask, ask_spark_of_many, sql_skips

_each = loop_errors("SQL to check", logging.getLogger(__name__))

#: Revisions checked at once, and seconds to wait for all their answers.
_SOME = 20
_ASK_LIMIT_S = 10.0
#: Revisions read at once: an upgraded installation with 100,000 of them is done in two hours.
_READ_AT_ONCE = 200


def recheck_sql(*, now: datetime) -> int:
    """Check revisions that were saved unchecked; return how many have been checked now.

    Only a query's newest revision matters; older ones are not checked.
    """
    rows = QueryRevision.objects.filter(unasked=True).select_related("query__application")
    asked: list[tuple[QueryRevision, SqlQuery, dict[str, str], Spark]] = []
    left = []
    for row in rows.order_by("pk")[:_SOME]:
        form = parsed_or_none(row.spec)
        old = row.query.archived_at is not None or not _is_newest(row)
        if old or not isinstance(form, SqlQuery):  # an unreadable one does not start either
            left.append(row.pk)
            continue
        with _each.isolate_errors(_about(row)):
            application = newest_application_spec(row.query.application)
            asked.append((row, form, conf_of(application), application.spark))
    QueryRevision.objects.filter(pk__in=left).update(unasked=False)
    questions = [(row.spec, conf, spark) for row, _, conf, spark in asked]
    said = ask_spark_of_many(questions, limit_s=_ASK_LIMIT_S) if asked else []
    answered = 0
    for (row, form, conf, _), verdict in zip(asked, said, strict=True):
        if verdict is None:
            continue
        with _each.isolate_errors(_about(row)):
            _keep(row, form, verdict, conf, now)
            answered += 1
    return answered


def read_unread_sql() -> int:
    """Store the relations of some revisions whose SQL was not parsed; return how many were read.

    The order is random, so that SQL on which the parser fails does not block other SQL. If there is
    no parser, the first request shows it.
    """
    unread = QueryRevision.objects.filter(kind="sql", reads__isnull=True)
    some = list(unread.order_by("?").values_list("pk", flat=True)[:_READ_AT_ONCE])
    rows = unread.filter(pk__in=some).order_by("?").select_related("query__application")
    asked: list[tuple[QueryRevision, SqlQuestion]] = []
    for row in rows:
        with _each.isolate_errors(_about(row)):
            text = row.spec.get("sql")
            if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
                _store_reads(row, SqlReads(unknown=("it is empty or too long to be parsed",)))
                continue
            spark = newest_application_spec(row.query.application).spark
            asked.append(
                (row, SqlQuestion(text, unknown="only its relations are read", spark=spark))
            )
    read = 0
    for part in (asked[:1], asked[1:]):
        verdicts = ask([question for _, question in part], limit_s=_ASK_LIMIT_S)
        for (row, _), verdict in zip(part, verdicts, strict=True):
            if verdict is None or (verdict.ok and verdict.reads is None):
                continue  # no answer, or one of an earlier release's worker
            with _each.isolate_errors(_about(row)):
                _store_reads(row, SqlReads.from_json(verdict.reads or REJECTED.as_json()))
                read += 1
        if not read:
            break
    return read


def _store_reads(row: QueryRevision, found: SqlReads) -> None:
    unread = QueryRevision.objects.filter(pk=row.pk, reads__isnull=True)
    if unread.update(reads=found.as_json()):
        changed(f"query:{row.query_id}")


def _about(row: QueryRevision) -> str:
    return f"revision {row.number} of {row.query.name}"


def _is_newest(row: QueryRevision) -> bool:
    return not QueryRevision.objects.filter(query=row.query_id, number__gt=row.number).exists()


def _keep(
    row: QueryRevision, form: SqlQuery, verdict: SqlVerdict, conf: dict[str, str], now: datetime
) -> None:
    problem = None if verdict.ok else refused(form.sql, verdict)
    others = [one for one in row.skipped if one.check not in (Check.SQL, Check.NAMES)]
    skips = [] if problem else sql_skips(form, verdict, conf)
    with transaction.atomic():
        found = QueryRevision.objects.filter(pk=row.pk, unasked=True).update(
            unasked=False,
            unchecked=as_json([*skips, *others]),
            refusal=f"{problem.message} {problem.way_out}".strip() if problem else "",
            state=verdict.state,
            state_by=verdict.spark,
            reads=verdict.reads,
        )
        if not found:
            return
        said = Detail.SQL_REFUSED_LATER if problem else Detail.SQL_CHECKED_LATER
        about = {"revision": row.number, "author": row.author}
        if problem:
            about["problem"] = problem.message
        record(
            "definition",
            f"revision {row.number}",
            f"revision {row.number}",
            "",
            now=now,
            application=row.query.application,
            query=row.query,
            detail=Because(said, about),
        )
        changed(f"query:{row.query_id}")
