"""Which queries of an application wait for which others, over REST."""

from dataclasses import dataclass
from datetime import timedelta

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import Body, shows
from queries.api.methods import answers
from queries.api.paging import whole_number
from queries.domain.triggers.waiting import Starved, TaskShare
from queries.selectors.supervision.applications import application_detail
from queries.selectors.triggers.waiting import starved_queries, task_shares

_LONGEST_H = 7 * 24
_HOURS = OpenApiParameter("hours", int, description="Length of the range, 1 to 168; default 1.")


@shows(TaskShare, "query pool covered_s=since task_s share waited_s waited_for")
class TaskShareBody(Body):
    """What a query took of its application's cores.

    pool: Empty: Spark's own pool, `default`.
    covered_s: Seconds of the range in which it ran.
    task_s: Its tasks' run time, added up over all cores.
    share: Of all task time of the application, 0 to 1.
    waited_s: Seconds in which its stages stood ready and none of their tasks ran.
    waited_for: Of that, seconds by the query whose tasks ran.
    """

    waited_for = serializers.DictField(child=serializers.FloatField())


@shows(Starved, "query by says change")
class StarvedBody(Body):
    """A query that waited for others for a tenth of the time or more.

    by: For which it waited longest.
    change: The change of pools that mends it.
    """


@dataclass(frozen=True, slots=True)
class Waits:
    """Task time and waits over a range."""

    hours: int
    queries: list[TaskShare]
    starved: list[Starved]


@shows(Waits, "hours queries starved")
class WaitsBody(Body):
    """Task time and waits of an application's queries in the hours before now."""

    queries = TaskShareBody(many=True)
    starved = StarvedBody(many=True)


class ApplicationWaitsView(ApiView):
    """Task time and waits of one application."""

    @answers("get_application_waits", WaitsBody, parameters=[_HOURS])
    def get(self, name: str) -> Waits:
        """Return who used an application's cores, and who waited for whom."""
        detail = application_detail(name)
        hours = whole_number(self.request, "hours", 1, low=1, high=_LONGEST_H)
        shares = task_shares(
            detail.application, since=self.now - timedelta(hours=hours), until=self.now
        )
        words = "the last hour" if hours == 1 else f"the last {hours} hours"
        return Waits(hours, shares, starved_queries(detail, shares, span=words))
