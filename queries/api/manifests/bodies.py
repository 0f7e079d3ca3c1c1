"""What the API takes and says of sets of manifests."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from queries.api.derived import Body, described
from queries.api.schema import ObjectField
from queries.domain.manifests.plans import Outcome
from queries.domain.manifests.sets import MOST_FILES

Form = serializers.Serializer[Any]

#: Any JSON value.
_ANY: dict[str, Any] = {}
_ANY_FIELD: Any = extend_schema_field(_ANY)(serializers.JSONField)


@described
class SetSourceForm(Form):
    """Where a set comes from.

    commit: Its full hash, 40 hexadecimal digits.
    """

    repository = serializers.CharField(required=False, allow_blank=True, max_length=500)
    commit = serializers.CharField(required=False, allow_blank=True, max_length=64)


@described
class SetFileForm(Form):
    """One file of a set.

    path: As the repository has it; shown beside the object.
    manifest: One manifest, as `schema/manifest.json` has it.
    text: In its place, the file's YAML, which may hold several.
    """

    path = serializers.CharField(required=False, allow_blank=True, max_length=500)
    manifest = ObjectField(required=False)
    text = serializers.CharField(required=False)


@described
class SetForm(Form):
    """A set of manifests.

    owner: Whose the objects are; only this owner's sets change or prune them.
    values: What `${values.NAME}` stands for in the manifests; never secrets.
    dry_run: Answer the same, and write nothing.
    prune: Delete what the owner no longer has in the set.
    prune_running: What of that runs is stopped first, by an operation that follows.
    """

    owner = serializers.CharField(max_length=80)
    source = SetSourceForm(required=False)  # type: ignore[assignment]  # no field's own
    values = ObjectField(required=False)
    manifests = serializers.ListField(child=SetFileForm(), max_length=MOST_FILES)
    dry_run = serializers.BooleanField(default=False)
    prune = serializers.BooleanField(default=False)
    prune_running = serializers.BooleanField(default=False)


@described
class FieldChangeBody(Body):
    """A field that differs; null where it is not there.

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
    """What was edited since the file was applied, and how to settle it."""

    changes = FieldChangeBody(many=True)
    way_out = serializers.CharField()


@described
class ObjectBody(Body):
    """What becomes of one object, or has become of it.

    path: Empty for what no file holds any more.
    drift: Null: nothing was edited since its file was applied.
    revision: Of its definition; null where it has none.
    """

    kind = serializers.CharField()
    name = serializers.CharField()
    path = serializers.CharField()
    outcome = serializers.ChoiceField([str(one) for one in Outcome])
    changes = FieldChangeBody(many=True)
    problems = FieldProblemBody(many=True)
    drift = DriftBody(allow_null=True)
    revision = serializers.IntegerField(allow_null=True)


@described
class AppliedBody(Body):
    """What an apply has done, or would do.

    operations: What follows: starts, stops and deletions.
    """

    dry_run = serializers.BooleanField()
    owner = serializers.CharField()
    objects = ObjectBody(many=True)
    operations = serializers.ListField(child=serializers.UUIDField())


@described
class FileBody(Body):
    """An object as a file.

    path: Proposed.
    """

    path = serializers.CharField()
    manifest = ObjectField()


class ExportBody(Body):
    """Objects as manifests."""

    manifests = FileBody(many=True)


@described
class OwnerBody(Body):
    """Whose an object is.

    path: Of its file.
    drift: Null: it is as its file was when it was applied.
    """

    owner = serializers.CharField()
    repository = serializers.CharField()
    commit = serializers.CharField()
    path = serializers.CharField()
    applied_at = serializers.DateTimeField()
    applied_by = serializers.CharField()
    drift = DriftBody(allow_null=True)
