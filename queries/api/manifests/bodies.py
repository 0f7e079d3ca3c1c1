"""Request and response bodies for sets of manifests."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from queries.api.derived import Body, described
from queries.api.schema import ObjectField
from queries.domain.definitions.effects import Effect
from queries.domain.manifests.plans import Outcome
from queries.domain.manifests.sets import MOST_FILES
from queries.domain.validation.skipped import Check

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

    owner: The owner of the objects; only this owner's sets can change or prune them.
    values: Values for `${values.NAME}` in the manifests; never secrets.
    dry_run: Return the same response, and write nothing.
    prune: Delete the owner's objects that are no longer in the set.
    prune_running: Prune running objects too: an operation stops them, then deletes them.
    accept_state_change: Also start queries whose state changes meaning.
    require_checked: Refuse queries whose SQL could not be checked, changed or not.
    resolved: As returned by a dry run: these branches and tags are not resolved again.
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
    """Changes made since the file was applied, and how to reconcile them."""

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

    path: Empty if no file contains the object any more.
    drift: Null if nothing has been edited since its file was applied.
    revision: The revision of its definition; null if it has none.
    not_checked: Skipped checks of its definition.
    state_change: Effects on the state in its checkpoint; empty if none are known.
    effect: What must happen before its changes take effect; null if it does not change.
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
