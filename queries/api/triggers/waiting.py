"""Which queries of an application wait for others, over REST."""

from dataclasses import dataclass
from datetime import timedelta

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import Body, serializer_for
from queries.api.methods import answers
from queries.api.paging import whole, whole_number
from queries.domain.triggers.waiting import Starved, TaskShare
from queries.selectors.supervision.applications import application_detail
from queries.selectors.triggers.waiting import starved_queries, task_shares

_LONGEST_H = 7 * 24
_HOURS = whole("hours", 1, low=1, high=_LONGEST_H, about="Length of the range, until now.")


@serializer_for(TaskShare, "query pool covered_s=since task_s share waited_s waited_for")
class TaskShareBody(Body):
    """A query's use of its application's cores.

    pool: Empty for Spark's own pool, `default`.
    covered_s: Seconds of the range in which it ran.
    task_s: Its tasks' run time, totalled over all cores.
    share: Of the application's total task time, 0 to 1.
    waited_s: Seconds in which its stages were ready but none of their tasks ran.
    waited_for: Those seconds, by the query whose tasks ran instead.
    """

    waited_for = serializers.DictField(child=serializers.FloatField())


@serializer_for(Starved, "query by says change")
class StarvedBody(Body):
    """A query that waited for others for 10 % of the time or more.

    by: The query that it waited for longest.
    change: The change to the pools that would fix this.
    """


@dataclass(frozen=True, slots=True)
class Waits:
    """Task time and waits over a time range."""

    hours: int
    queries: list[TaskShare]
    starved: list[Starved]


@serializer_for(Waits, "hours queries starved")
class WaitsBody(Body):
    """Task time and waits for an application's queries in recent hours."""

    queries = TaskShareBody(many=True)
    starved = StarvedBody(many=True)


class ApplicationWaitsView(ApiView):
    """Task time and waits of one application."""

    @answers("get_application_waits", WaitsBody, parameters=[_HOURS])
    def get(self, name: str) -> Waits:
        """Return each query's use of an application's cores, and the queries that it waited for."""
        detail = application_detail(name)
        hours = whole_number(self.request, "hours", 1, low=1, high=_LONGEST_H)
        shares = task_shares(
            detail.application, since=self.now - timedelta(hours=hours), until=self.now
        )
        words = "the last hour" if hours == 1 else f"the last {hours} hours"
        return Waits(hours, shares, starved_queries(detail, shares, span=words))
