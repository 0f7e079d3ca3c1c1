"""Desired state from files: apply a set of manifests, export objects, return the schema."""

from collections.abc import Callable
from typing import Any

from drf_spectacular.types import OpenApiTypes
from rest_framework.response import Response

from queries.api.base import ApiView, BoundedJSONParser
from queries.api.errors import PROBLEM_JSON
from queries.api.manifests import bodies
from queries.api.methods import answers
from queries.api.paging import word
from queries.domain.access.acts import Act
from queries.domain.errors import Missing
from queries.domain.manifests.forms import manifest_schema
from queries.domain.manifests.plans import Outcome
from queries.domain.manifests.sets import parse_set
from queries.roles import ADMINISTER, DEFINE
from queries.selectors.alerts.rules import rule_named
from queries.selectors.definitions import definitions
from queries.selectors.manifests.export import export
from queries.selectors.manifests.owners import managed_of, owned
from queries.selectors.supervision import applications
from queries.services.access.audit_trail import record_act
from queries.services.manifests.applying import apply_set
from queries.services.manifests.ownership import release


class SetParser(BoundedJSONParser):
    """Accept larger bodies, because a set contains many definitions."""

    times = 4  # the system as a whole accepts no larger body (installation.asgi)


class ApplyView(ApiView):
    """The `apply` verb."""

    parser_classes = (SetParser,)

    @answers(
        "apply",
        bodies.AppliedBody,
        role=DEFINE,
        request=bodies.SetForm,  # for the document only: `parse_set` reports errors better
        responses={
            200: bodies.AppliedBody,
            (422, "application/json"): bodies.AppliedBody,  # an object is rejected
            (422, PROBLEM_JSON): OpenApiTypes.OBJECT,  # the set itself is malformed
        },
    )
    def post(self) -> Response:
        """Apply a set of manifests: all of it, or nothing if an object is rejected (422).

        This writes definitions, and starts and stops queries and scripts as the manifests specify.
        Running queries keep their revision until they are restarted or deployed.
        """
        asked = parse_set(self.request.data)
        done = apply_set(asked, user=self.request.user, via="rest", **self.by)
        refused = any(one.outcome is Outcome.REFUSED for one in done.objects)
        body = bodies.AppliedBody(
            {
                "dry_run": asked.dry_run,
                "owner": asked.owner,
                "objects": done.objects,
                "operations": done.operations,
                "resolved": done.resolved,
            }
        )
        return Response(body.data, status=422 if refused else 200)


class ExportView(ApiView):
    """Existing objects as files."""

    @answers(
        "export",
        bodies.ExportBody,
        parameters=[*map(word, ("application", "query", "owner"))],
    )
    def get(self) -> dict[str, Any]:
        """Return existing objects as manifests, omitting fields that have default values."""
        asked = {name: self.query_param(name) for name in ("application", "query", "owner")}
        found = export(**asked)
        subject = asked["query"] or asked["application"] or asked["owner"]
        record_act(Act.EXPORTED, subject=subject, what="manifests", objects=len(found), **self.by)
        return {"manifests": found}


class _OwnerView(ApiView):
    """The owner of an object."""

    look_up: Callable[[str], Any]  # returns the object with this name

    def shown(self, name: str) -> dict[str, Any]:
        """Return an object's owner; raise `Missing` if it has none."""
        found = owned(self.look_up(name))
        if found is None:
            way_out = "Apply a set that contains this object to give it an owner."
            raise Missing(f"{name} has no owner.", way_out=way_out)
        names = ("owner", "repository", "commit", "path", "applied_at", "applied_by")
        return {one: getattr(found.managed, one) for one in names} | {"drift": found.drift}

    def let_go(self, name: str) -> None:
        """Release an object from its owner."""
        release(managed_of(self.look_up(name)), **self.by)


class QueryOwnerView(_OwnerView):
    """The owner of a query."""

    look_up = staticmethod(definitions.query)

    @answers("get_query_owner", bodies.OwnerBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return a query's owner, its file, and the edits since the file was applied."""
        return self.shown(name)

    @answers("release_query", None, role=DEFINE)
    def delete(self, name: str) -> None:
        """Release a query from its owner: its file no longer applies, and no prune deletes it."""
        self.let_go(name)


class ApplicationOwnerView(_OwnerView):
    """The owner of an application."""

    look_up = staticmethod(applications.application)

    @answers("get_application_owner", bodies.OwnerBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return an application's owner, its file, and the edits since the file was applied."""
        return self.shown(name)

    @answers("release_application", None, role=DEFINE)
    def delete(self, name: str) -> None:
        """Release an application from its owner."""
        self.let_go(name)


class RuleOwnerView(_OwnerView):
    """The owner of an alert rule."""

    look_up = staticmethod(rule_named)

    @answers("get_alert_rule_owner", bodies.OwnerBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return an alert rule's owner, its file, and the edits since the file was applied."""
        return self.shown(name)

    @answers("release_alert_rule", None, role=ADMINISTER)
    def delete(self, name: str) -> None:
        """Release an alert rule from its owner."""
        self.let_go(name)


#: The media type of JSON Schema.
_SCHEMA_JSON = "application/schema+json"
_SCHEMA = {(200, _SCHEMA_JSON): OpenApiTypes.OBJECT}


class ManifestSchemaView(ApiView):
    """The JSON Schema of a manifest."""

    @answers("get_manifest_schema", None, responses=_SCHEMA)
    def get(self) -> Response:
        """Return the JSON Schema of one manifest, for editors."""
        return Response(manifest_schema(), content_type=_SCHEMA_JSON)
