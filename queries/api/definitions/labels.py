"""The labels of queries and applications: replaced as a whole, without a restart."""

from typing import Any

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import described
from queries.api.methods import Sent, answers
from queries.api.schema import LabelsField
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.supervision import applications
from queries.services.definitions.labels import relabel


@described
class Labels(serializers.Serializer[Any]):
    """All labels of a query or an application.

    labels: Names and values: 1 to 63 lower-case letters, digits and . _ / -.
    """

    labels = LabelsField()


class QueryLabelsView(ApiView):
    """A query's own labels."""

    @answers("get_query_labels", Labels)
    def get(self, name: str) -> Query:
        """Return the query's own labels; its application's labels also apply to it."""
        return definitions.query(name)

    @answers("replace_query_labels", Labels, role=DEFINE, form=Labels)
    def put(self, sent: Sent, name: str) -> dict[str, Any]:
        """Replace the query's labels; the query is not restarted."""
        return {"labels": relabel(definitions.query(name), sent["labels"], **self.by)}


class ApplicationLabelsView(ApiView):
    """An application's labels."""

    @answers("get_application_labels", Labels)
    def get(self, name: str) -> Application:
        """Return the application's labels, which also apply to its queries."""
        return applications.application(name)

    @answers("replace_application_labels", Labels, role=DEFINE, form=Labels)
    def put(self, sent: Sent, name: str) -> dict[str, Any]:
        """Replace the application's labels; nothing is restarted."""
        return {"labels": relabel(applications.application(name), sent["labels"], **self.by)}
