"""The audit log over REST, for admins: pages of entries, and all entries as JSON lines."""

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes

from queries.api.base import ApiView
from queries.api.bodies import Body, serializer_for
from queries.api.methods import answers, lists, whole, whole_number, word
from queries.domain.access import Act
from queries.models.access.audit import AuditEntry
from queries.roles import ADMINISTER
from queries.selectors.access.accounts import FILTERS, entries
from queries.services.access.audit import JSON_LINES, export_audit_log

#: The highest number that can be requested.
_MOST = 999_999_999


@serializer_for(
    AuditEntry, "number at act=kind subject actor token token_id address details seal mac", act=Act
)
class AuditEntryBody(Body):
    """An action by a user or with a token.

    number: The entry's position in the chain; null until it is added to the chain.
    act: The kind of action.
    subject: The name of the object acted on.
    actor: The user; empty if unknown.
    token: The name of the token that was used; empty for a signed-in user.
    address: The client's IP address; empty for a command.
    seal: A seal over the entry's content.
    mac: A MAC over the number, the seal and the previous entry's MAC.
    """


class AuditView(ApiView):
    """The audit log."""

    @lists(
        "list_audit_entries",
        AuditEntryBody,
        by="at pk",
        role=ADMINISTER,
        parameters=[word(name, Act if name == "act" else ()) for name in FILTERS],
    )
    def get(self) -> QuerySet[AuditEntry]:
        """List actions of users and tokens, newest first."""
        self.choice_params("act", Act) if self.query_param("act") else None
        return entries({name: self.query_param(name) for name in FILTERS})


class AuditExportView(ApiView):
    """The whole audit log."""

    @answers(
        "export_audit_log",
        None,
        role=ADMINISTER,
        parameters=[
            whole("after", 0, low=0, high=_MOST, about="Only entries with a higher number.")
        ],
        responses={(200, JSON_LINES): OpenApiTypes.STR},
    )
    def get(self) -> StreamingHttpResponse:
        """Return entries as JSON lines, oldest first; the export itself is recorded."""
        after = whole_number(self.request, "after", 0, low=0, high=_MOST)
        return export_audit_log(self.request._request, after=after, **self.by)
