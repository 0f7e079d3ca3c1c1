"""A dry run of a definition: it is validated as if it were being saved, and nothing is written."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import Body, described
from queries.api.manifests import FieldChangeBody, SkippedCheckBody
from queries.domain.manifests.sets import Outcome
from queries.services.definitions.catalog import Save

DRY_RUN = OpenApiParameter(
    "dry_run", OpenApiTypes.BOOL, description="Return what would change, without writing anything."
)
REQUIRE_CHECKED = OpenApiParameter(
    "require_checked",
    OpenApiTypes.BOOL,
    description="Refuse SQL that could not be checked, with 422, instead of saving it unchecked.",
)


@described
class TrialBody(Body):
    """The result of a dry run.

    changes: For an existing definition: each field that differs.
    not_checked: Skipped checks.
    """

    dry_run = serializers.BooleanField()
    outcome = serializers.ChoiceField(
        [str(one) for one in (Outcome.CREATED, Outcome.CHANGED, Outcome.UNCHANGED)]
    )
    changes = FieldChangeBody(many=True)
    not_checked = SkippedCheckBody(many=True)


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
    """Return a response that reports what a save would change."""
    item = save.item
    found = {"outcome": item.outcome, "changes": item.changes, "not_checked": item.checked.skipped}
    return Response(TrialBody({"dry_run": True, **found}).data, status=200)
