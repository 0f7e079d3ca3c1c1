"""Put and patch of a definition: the same steps for queries and applications."""

from collections.abc import Callable
from typing import Any

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer
from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView, BoundedJSONParser
from queries.api.definitions.etags import check_if_match, etag
from queries.api.definitions.trials import DRY_RUN, TrialBody
from queries.api.errors import invalid
from queries.api.methods import Method, answers
from queries.domain.errors import StaleRevision
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import DEFINE

#: How often a patch without If-Match is applied again when somebody else saved first.
ATTEMPTS = 5

IF_MATCH = OpenApiParameter(
    "If-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="ETag of a GET."
)

IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    enum=["*"],
    description="*: create it; 412 where it is there.",
)

Spec = dict[str, Any]
#: Stores `spec`, made from the revision `expected_revision`; raises `StaleRevision`.
Store = Callable[..., Any]


class MergePatchParser(BoundedJSONParser):
    """Reads a merge patch (RFC 7396)."""

    media_type = "application/merge-patch+json"


class DefinitionView(ApiView):
    """The address of one definition."""

    parser_classes = (BoundedJSONParser, MergePatchParser)


def changes(operation_id: str, body: Any, form: Any) -> Callable[[Method], Method]:
    """Read a definition, whole or in part, and answer with what it has become."""
    kinds = [each.media_type for each in DefinitionView.parser_classes]
    sent = dict.fromkeys(kinds if operation_id.startswith("patch") else kinds[:1], form)
    headers = [IF_MATCH, DRY_RUN]
    more: dict[str, Any] = {"responses": {200: or_trial(body)}}
    if operation_id.startswith("replace"):
        headers.append(IF_NONE_MATCH)
        more["responses"][201] = body
    return answers(
        operation_id, body, role=DEFINE, form=form, request=sent, parameters=headers, **more
    )


def or_trial(body: Any) -> Any:
    """Describe an answer that is the definition, or what a dry run tells."""
    name = f"{body.__name__.removesuffix('Body')}OrTrial"
    return PolymorphicProxySerializer(name, [body, TrialBody], resource_type_field_name=None)


def defined(
    body: Any, owner: Query | Application, revision: int | None, *, new: bool = False
) -> Response:
    """Answer with an owner's body and the ETag of its definition, with its address where new."""
    headers = {"ETag": etag(owner, revision)}
    if new:
        address = reverse(f"api:{owner._meta.model_name}", args=[owner.name])
        headers["Location"] = address
    return Response(body, status=201 if new else 200, headers=headers)


def is_new(request: Request) -> bool:
    """Return whether a put is to create: only where nothing is there (`If-None-Match: *`)."""
    header = request.headers.get("If-None-Match", "").strip()
    if header not in ("", "*"):
        way_out = "Send *, or If-Match with the ETag of a GET to replace."
        raise invalid("If-None-Match", header, "is not * and means nothing here.", way_out)
    return header == "*"


def refuse_there(name: str, *, there: bool) -> None:
    """Raise where a put that creates meets what is there already."""
    if there:
        raise StaleRevision(
            f"{name} is there already.",
            way_out="Send If-Match with the ETag of a GET to replace it.",
        )


def check_deleted(request: Request, owner: Query | Application) -> None:
    """Raise where a delete names another definition than the newest."""
    check_if_match(request, owner, _newest(owner)[0], required=False)


def replace(
    request: Request, owner: Query | Application, sent: Spec, fixed: Spec, store: Store
) -> None:
    """Store a definition whole. `fixed` holds what cannot change, and must be sent as it is."""
    for name, value in fixed.items():
        if name in sent and sent[name] != value:
            way_out = "Delete this one and create another, or leave the field out."
            raise invalid(name, sent[name], f"is {value} and cannot be changed.", way_out)
    number, _ = _newest(owner)
    named = check_if_match(request, owner, number)
    store(spec=sent["spec"], expected_revision=number if named else None)


def patch(request: Request, owner: Query | Application, part: Spec, store: Store) -> None:
    """Merge a part into the newest definition; with If-Match only into the one it names."""
    for attempt in range(1, ATTEMPTS + 1):
        number, spec = _newest(owner)
        named = check_if_match(request, owner, number, required=False)
        try:
            store(spec=merged(spec, part), expected_revision=number)
        except StaleRevision:
            if named or attempt == ATTEMPTS:
                raise
        else:
            return


def merged(target: Any, part: Any) -> Any:
    """Return JSON merged as RFC 7396 has it: null removes, lists are replaced whole."""
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
