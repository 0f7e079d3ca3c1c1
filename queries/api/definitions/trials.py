"""A dry run of a definition: it is validated as if it were being saved, and nothing is written."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import transaction
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import Body, described
from queries.api.manifests.bodies import FieldChangeBody, SkippedCheckBody
from queries.domain.manifests.plans import Outcome, differences
from queries.domain.validation.skipped import Skip

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
    return bool(view.asked_flag("dry_run"))


def requires_check(view: ApiView) -> bool:
    """Return whether SQL that could not be checked must be refused."""
    return bool(view.asked_flag("require_checked"))


@contextmanager
def undone(view: ApiView) -> Iterator[None]:
    """Run a block's writes, and roll them back in a dry run; errors are passed on."""
    with transaction.atomic():
        yield
        if is_dry(view):
            transaction.set_rollback(True)


def would_create(skipped: Sequence[Skip] = ()) -> Response:
    """Return a response that reports that a new definition would be created."""
    return _answer(Outcome.CREATED, (), skipped)


class Trial:
    """Validate a definition and record the differences, in place of the function that stores it."""

    def __init__(
        self, before: dict[str, Any], check: Callable[..., Any], normal: Callable[..., Any]
    ) -> None:
        self._before, self._check, self._normal = before, check, normal
        self._changes: Any = ()
        self._skipped: Sequence[Skip] = ()

    def __call__(self, *, spec: dict[str, Any], expected_revision: int | None) -> None:
        """Validate the definition; raise `Invalid` as a save would."""
        checked = self._check(spec=spec)
        self._skipped = checked.skipped if checked is not None else ()
        self._changes = differences(
            {"spec": self._normal(self._before)}, {"spec": self._normal(spec)}
        )

    def answer(self) -> Response:
        """Return the response that reports what would change."""
        outcome = Outcome.CHANGED if self._changes else Outcome.UNCHANGED
        return _answer(outcome, self._changes, self._skipped)


def _answer(outcome: Outcome, changes: Any, skipped: Sequence[Skip]) -> Response:
    found = {"outcome": outcome, "changes": changes, "not_checked": skipped}
    body = TrialBody({"dry_run": True, **found})
    return Response(body.data, status=200)
