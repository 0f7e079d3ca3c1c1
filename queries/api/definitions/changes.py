"""Changes of definitions over REST, and dry runs, which write nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from django.db import transaction
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView, BoundedJSONParser
from queries.api.bodies import Body, described, form_for
from queries.api.definitions.bodies import ApplicationBody, QueryBody, check_if_match, etag
from queries.api.errors import invalid
from queries.api.manifests import FieldChangeBody, SkippedCheckBody
from queries.api.methods import Method, Sent, answers
from queries.api.schema import ApplicationSpecField, LabelsField, ObjectField, QuerySpecField
from queries.domain.code.references import settled
from queries.domain.definitions.locations import s3a_notes, with_s3a
from queries.domain.definitions.spec import PoolSpec
from queries.domain.errors import StaleRevision
from queries.domain.manifests.sets import Outcome
from queries.domain.states import StopMode
from queries.domain.validation.query_rules import LONGEST_NAME
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.supervision import applications
from queries.services.definitions.catalog import Save
from queries.services.definitions.rights import relabel

DRY_RUN = OpenApiParameter(
    "dry_run", OpenApiTypes.BOOL, description="Return what would change, without writing anything."
)
REQUIRE_CHECKED = OpenApiParameter(
    "require_checked",
    OpenApiTypes.BOOL,
    description="Reject SQL that could not be checked, with 422, instead of saving it unchecked.",
)


@described
class TrialBody(Body):
    """The result of a dry run.

    changes: For an existing definition: each field that differs.
    not_checked: Skipped checks. notes: Values that would be stored in another form.
    """

    dry_run = serializers.BooleanField()
    outcome = serializers.ChoiceField(
        [str(one) for one in (Outcome.CREATED, Outcome.CHANGED, Outcome.UNCHANGED)]
    )
    changes = FieldChangeBody(many=True)
    not_checked = SkippedCheckBody(many=True)
    notes = serializers.ListField(child=serializers.CharField())


def is_dry(view: ApiView) -> bool:
    """Return whether this is a dry run."""
    return bool(view.boolean_param("dry_run"))


def requires_check(view: ApiView) -> bool:
    """Return whether SQL that could not be checked must be refused."""
    return bool(view.boolean_param("require_checked"))


@contextmanager
def undone(view: ApiView) -> Iterator[None]:
    """Run a block's writes, and roll them back in a dry run; errors are passed on."""
    with transaction.atomic():
        yield
        if is_dry(view):
            transaction.set_rollback(True)


def would_save(save: Save) -> Response:
    """Return a response that lists the changes of a save."""
    item = save.item
    found = {"outcome": item.outcome, "changes": item.changes, "not_checked": item.checked.skipped}
    found["notes"] = item.notes
    return Response(TrialBody({"dry_run": True, **found}).data, status=200)


Form = serializers.Serializer[Any]


@described
class QueryCreate(Form):
    """A new query: its name, its definition, and where it runs.

    application: An existing application; if omitted, the query gets its own.
    application_spec: The definition of the query's own application; if omitted, defaults apply.
    team: The team that will own the query's own application; if omitted, your only team.
    checkpoint: An absolute location; if omitted, a folder in HEADGATE_HOME.
    """

    name = serializers.CharField(max_length=LONGEST_NAME)
    spec = QuerySpecField()
    application = serializers.CharField(allow_blank=True, default="")
    application_spec = ApplicationSpecField(required=False)
    checkpoint = serializers.CharField(allow_blank=True, default="")
    team = serializers.CharField(allow_blank=True, default="")


class QueryReplace(Form):
    """A query's complete definition. Name, application and checkpoint cannot change."""

    #: Additional fields returned by GET, so that the response can be edited and sent back.
    ignored: ClassVar[tuple[str, ...]] = tuple(QueryBody().fields)

    spec = QuerySpecField()
    name = serializers.CharField(required=False)
    application = serializers.CharField(required=False)
    checkpoint = serializers.CharField(required=False, allow_blank=True)


class QueryMerge(Form):
    """A part of a query's definition, merged as in RFC 7396: null removes a field."""

    spec = ObjectField()


@described
class ApplicationCreate(Form):
    """A new application for several queries.

    team: The team that will own it; if omitted, your only team.
    """

    name = serializers.CharField(max_length=LONGEST_NAME)
    spec = ApplicationSpecField(default=dict)
    team = serializers.CharField(allow_blank=True, default="")


class ApplicationReplace(Form):
    """An application's complete definition. The name cannot change."""

    ignored: ClassVar[tuple[str, ...]] = tuple(ApplicationBody().fields)

    spec = ApplicationSpecField()
    name = serializers.CharField(required=False)


class ApplicationMerge(Form):
    """A part of an application's definition, merged as in RFC 7396: null removes a field."""

    spec = ObjectField()


@form_for(PoolSpec)
class PoolCreate(Form):
    """A FAIR scheduler pool."""

    name = serializers.CharField(max_length=80)


class PoolReplace(PoolCreate):
    """A complete pool. The name cannot change."""

    ignored: ClassVar[tuple[str, ...]] = ("application", "queries")

    name = serializers.CharField(required=False)


STOP_MODES = [str(mode) for mode in StopMode]


class Stop(Form):
    """How a stop treats the batch in flight."""

    mode = serializers.ChoiceField(STOP_MODES, default=str(StopMode.GRACEFUL))


@described
class Start(Form):
    """How a query starts on its newest revision.

    accept_state_change: Start even if its state changes meaning; otherwise 409.
    """

    accept_state_change = serializers.BooleanField(default=False)


@described
class StartWithParams(Start):
    """How one query starts on its newest revision.

    accept_state_change: Start even if its state changes meaning; otherwise 409. params: Values for
    parameters of the definition. If omitted, a start uses the defaults, and a restart keeps the
    values. read_text: Convert strings in params to the types of the defaults: "3" as 3.
    """

    params = ObjectField(allow_null=True, default=None)
    read_text = serializers.BooleanField(default=False)


@described
class Answer(Form):
    """Which missing query, if any, a script's new query corresponds to.

    identity: The identity in the question, because the question may have changed since. same_as:
    The name of that missing query; empty if it is a new query.
    """

    identity = serializers.CharField(max_length=1200)
    same_as = serializers.CharField(max_length=160, allow_blank=True)


#: How often a PATCH without If-Match is reapplied if another save came first.
ATTEMPTS = 5

IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="The ETag from a GET."
)

IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    enum=["*"],
    description="* creates the object; the response is 412 if it already exists.",
)

Spec = dict[str, Any]
#: Stores `spec`, based on the revision `expected_revision`; raises `StaleRevision`.
Store = Callable[..., Any]


class MergePatchParser(BoundedJSONParser):
    """Reads a merge patch (RFC 7396)."""

    media_type = "application/merge-patch+json"


class DefinitionView(ApiView):
    """The endpoint of one definition."""

    parser_classes = (BoundedJSONParser, MergePatchParser)


def changes(operation_id: str, body: Any, form: Any) -> Callable[[Method], Method]:
    """Accept a complete or partial definition, and return the result."""
    kinds = [each.media_type for each in DefinitionView.parser_classes]
    sent = dict.fromkeys(kinds if operation_id.startswith("patch") else kinds[:1], form)
    headers = [IF_MATCH, DRY_RUN]
    more: dict[str, Any] = {"responses": {200: or_trial(body)}}
    if operation_id.startswith("replace"):
        headers.append(IF_NONE_MATCH)
        more["responses"][201] = body
    if operation_id.endswith("_query"):
        headers.append(REQUIRE_CHECKED)
    return answers(
        operation_id, body, role=DEFINE, form=form, request=sent, parameters=headers, **more
    )


def or_trial(body: Any) -> Any:
    """Describe a response that is either the definition or the result of a dry run."""
    name = f"{body.__name__.removesuffix('Body')}OrTrial"
    return PolymorphicProxySerializer(name, [body, TrialBody], resource_type_field_name=None)


def defined(
    body: Any,
    owner: Query | Application,
    revision: int | None,
    *,
    new: bool = False,
    sent: Any = None,
) -> Response:
    """Return an owner's body and the ETag of its definition, with its URL if it is new.

    The body notes what was `sent` but is stored in another form.
    """
    body["notes"] = s3a_notes(sent)
    headers = {"ETag": etag(owner, revision)}
    if new:
        address = reverse(f"api:{owner._meta.model_name}", args=[owner.name])
        headers["Location"] = address
    return Response(body, status=201 if new else 200, headers=headers)


def is_new(request: Request) -> bool:
    """Return whether a PUT should create an object: only if none exists (`If-None-Match: *`)."""
    header = request.headers.get("If-None-Match", "").strip()
    if header not in ("", "*"):
        way_out = "Send *, or If-Match with the ETag from a GET to replace it."
        raise invalid("If-None-Match", header, "must be *, the only value supported here.", way_out)
    return header == "*"


def refuse_there(name: str, *, there: bool) -> None:
    """Raise if a PUT that should create an object finds an existing one."""
    if there:
        raise StaleRevision(
            f"{name} already exists.",
            way_out="Send If-Match with the ETag from a GET to replace it.",
        )


def check_deleted(request: Request, owner: Query | Application) -> None:
    """Raise if a DELETE specifies a definition other than the newest."""
    check_if_match(request, owner, _newest(owner)[0], required=False)


def replace(
    request: Request, owner: Query | Application, sent: Spec, fixed: Spec, store: Store
) -> Any:
    """Store a complete definition and return what `store` returns.

    Fields in `fixed` are rejected if sent with another value.
    """
    for name, value in fixed.items():
        if name in sent and with_s3a(sent[name], []) != with_s3a(value, []):
            way_out = "Delete this one and create another, or omit the field."
            raise invalid(name, sent[name], f"is {value} and cannot be changed.", way_out)
    number, _ = _newest(owner)
    named = check_if_match(request, owner, number)
    return store(spec=sent["spec"], expected_revision=number if named else None)


def patch(request: Request, owner: Query | Application, part: Spec, store: Store) -> Any:
    """Merge a part into the newest definition and return what `store` returns.

    With If-Match, this is done only if the newest definition is the specified one.
    """
    for attempt in range(1, ATTEMPTS + 1):
        number, spec = _newest(owner)
        named = check_if_match(request, owner, number, required=False)
        try:
            return store(spec=settled(merged(spec, part), spec), expected_revision=number)
        except StaleRevision:
            if named or attempt == ATTEMPTS:
                raise
    raise AssertionError("the loop returns or raises")


def merged(target: Any, part: Any) -> Any:
    """Return JSON merged according to RFC 7396: null removes a field, lists are replaced whole."""
    if not isinstance(part, dict):
        return part
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in part.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _newest(owner: Query | Application) -> tuple[int, Spec]:
    revision = owner.revisions.order_by("-number")[0]
    spec: Spec = revision.spec
    return revision.number, spec


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
