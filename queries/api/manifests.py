"""Desired state from files: apply a set of manifests, export objects, return the schema."""

from collections.abc import Callable
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView, BoundedJSONParser
from queries.api.bodies import Body, described
from queries.api.errors import PROBLEM_JSON
from queries.api.methods import answers, word
from queries.api.schema import ObjectField
from queries.domain.access import Act
from queries.domain.definitions.spec import Effect
from queries.domain.errors import Missing
from queries.domain.manifests.forms import manifest_schema
from queries.domain.manifests.sets import MOST_FILES, Outcome, parse_set
from queries.domain.validation.skipped import Check
from queries.roles import ADMINISTER, DEFINE
from queries.selectors.alerts.rules import rule_named
from queries.selectors.definitions import definitions
from queries.selectors.manifests import export, managed_of, owned
from queries.selectors.supervision import applications
from queries.services.access.audit import record_act
from queries.services.manifests.applying import apply_set
from queries.services.manifests.ownership import release

Form = serializers.Serializer[Any]

#: Any JSON value.
_ANY: dict[str, Any] = {}
_ANY_FIELD: Any = extend_schema_field(_ANY)(serializers.JSONField)


@described
class SetSourceForm(Form):
    """The origin of a set.

    commit: The full hash, 40 hexadecimal digits.
    """

    repository = serializers.CharField(required=False, allow_blank=True, max_length=500)
    commit = serializers.CharField(required=False, allow_blank=True, max_length=64)


@described
class SetFileForm(Form):
    """One file in a set.

    path: The path in the repository, shown next to the object.
    manifest: One manifest, as described by `schema/manifest.json`.
    text: Instead of `manifest`: the file's YAML, which can contain several manifests.
    """

    path = serializers.CharField(required=False, allow_blank=True, max_length=500)
    manifest = ObjectField(required=False)
    text = serializers.CharField(required=False)


class GitRefForm(Form):
    """A branch or tag, and the commit that a dry run resolved it to."""

    git = serializers.CharField()
    ref = serializers.CharField()
    commit = serializers.CharField()


@described
class SetForm(Form):
    """A set of manifests.

    owner: The owner of the objects; only this owner's sets can change or prune them. values: Values
    for `${values.NAME}` in the manifests; never secrets. dry_run: Return the same response, and
    write nothing. prune: Delete the owner's objects that are no longer in the set. prune_running:
    Prune running objects too: an operation stops them, then deletes them. accept_state_change: Also
    start queries whose state changes meaning. require_checked: Refuse queries whose SQL could not
    be checked, changed or not. resolved: As returned by a dry run: its branches and tags are not
    resolved again.
    """

    owner = serializers.CharField(max_length=80)
    source = SetSourceForm(required=False)  # type: ignore[assignment]  # no field's own
    values = ObjectField(required=False)
    manifests = serializers.ListField(child=SetFileForm(), max_length=MOST_FILES)
    dry_run = serializers.BooleanField(default=False)
    prune = serializers.BooleanField(default=False)
    prune_running = serializers.BooleanField(default=False)
    accept_state_change = serializers.BooleanField(default=False)
    require_checked = serializers.BooleanField(default=False)
    resolved = GitRefForm(many=True, required=False)


@described
class FieldChangeBody(Body):
    """A field that differs; a missing value is null.

    field: Dotted path in the manifest.
    """

    field = serializers.CharField()
    before = _ANY_FIELD(allow_null=True)
    after = _ANY_FIELD(allow_null=True)


class FieldProblemBody(Body):
    """What is wrong with a field, and what to do."""

    field = serializers.CharField()
    value = serializers.CharField()
    message = serializers.CharField()
    way_out = serializers.CharField()


class DriftBody(Body):
    """Changes since the file was applied, and how to reconcile them."""

    changes = FieldChangeBody(many=True)
    way_out = serializers.CharField()


@described
class SkippedCheckBody(Body):
    """A skipped check of a definition.

    word: The check's label, such as "SQL not checked".
    again: Whether the check will be repeated automatically.
    """

    check = serializers.ChoiceField([str(one) for one in Check])
    word = serializers.CharField()
    why = serializers.CharField()
    again = serializers.BooleanField()


@described
class ObjectBody(Body):
    """The changes to one object: made by an apply, or planned.

    path: Empty if no file contains the object any longer. drift: Null if nothing has been edited
    since its file was applied. revision: The revision of its definition; null if it has none.
    not_checked: Skipped checks of its definition. state_change: Effects on the state in its
    checkpoint; empty if none are known. effect: What must happen before its changes take effect;
    null if it does not change. notes: Values that are stored in another form.
    """

    kind = serializers.CharField()
    name = serializers.CharField()
    path = serializers.CharField()
    outcome = serializers.ChoiceField([str(one) for one in Outcome])
    changes = FieldChangeBody(many=True)
    problems = FieldProblemBody(many=True)
    drift = DriftBody(allow_null=True)
    revision = serializers.IntegerField(allow_null=True)
    not_checked = SkippedCheckBody(many=True, source="skipped", default=list)
    state_change = serializers.ListField(child=serializers.CharField(), default=list)
    effect = serializers.ChoiceField([one.words for one in Effect], allow_null=True, default=None)
    notes = serializers.ListField(child=serializers.CharField(), default=list)


class GitRefBody(Body):
    """A branch or tag, and the commit that it was resolved to."""

    git = serializers.CharField()
    ref = serializers.CharField()
    commit = serializers.CharField()


@described
class AppliedBody(Body):
    """The result of an apply, or of its dry run.

    operations: Operations that follow: starts, stops and deletions.
    resolved: Commits of branches and tags; if sent back, they are not resolved again.
    """

    dry_run = serializers.BooleanField()
    owner = serializers.CharField()
    objects = ObjectBody(many=True)
    operations = serializers.ListField(child=serializers.UUIDField())
    resolved = GitRefBody(many=True)


@described
class FileBody(Body):
    """An object as a file.

    path: The proposed path.
    """

    path = serializers.CharField()
    manifest = ObjectField()


class ExportBody(Body):
    """Objects as manifests."""

    manifests = FileBody(many=True)


@described
class OwnerBody(Body):
    """The owner of an object.

    path: Path of its file.
    drift: Null if it has not changed since its file was applied.
    """

    owner = serializers.CharField()
    repository = serializers.CharField()
    commit = serializers.CharField()
    path = serializers.CharField()
    applied_at = serializers.DateTimeField()
    applied_by = serializers.CharField()
    drift = DriftBody(allow_null=True)


class SetParser(BoundedJSONParser):
    """Accept larger bodies, because a set contains many definitions."""

    times = 4  # the system as a whole accepts no larger body (installation.asgi)


class ApplyView(ApiView):
    """The `apply` verb."""

    parser_classes = (SetParser,)

    @answers(
        "apply",
        AppliedBody,
        role=DEFINE,
        request=SetForm,  # for the document only: `parse_set` reports errors better
        responses={
            200: AppliedBody,
            (422, "application/json"): AppliedBody,  # an object is rejected
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
        body = AppliedBody(
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
        ExportBody,
        parameters=[*map(word, ("application", "query", "owner"))],
    )
    def get(self) -> dict[str, Any]:
        """Return the existing objects as manifests, omitting fields that have default values."""
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

    @answers("get_query_owner", OwnerBody)
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

    @answers("get_application_owner", OwnerBody)
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

    @answers("get_alert_rule_owner", OwnerBody)
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
