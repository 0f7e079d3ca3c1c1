"""A dry run of a definition: it is validated as when it is saved, and nothing is written."""

from collections.abc import Callable
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.derived import Body, described
from queries.api.manifests.bodies import FieldChangeBody
from queries.domain.manifests.plans import Outcome, differences

DRY_RUN = OpenApiParameter(
    "dry_run", OpenApiTypes.BOOL, description="Answer what would change, and write nothing."
)


@described
class TrialBody(Body):
    """What would become of a definition.

    changes: Of one that is there: each field that differs.
    """

    dry_run = serializers.BooleanField()
    outcome = serializers.ChoiceField(
        [str(one) for one in (Outcome.CREATED, Outcome.CHANGED, Outcome.UNCHANGED)]
    )
    changes = FieldChangeBody(many=True)


def is_dry(view: ApiView) -> bool:
    """Return whether nothing is to be written."""
    return bool(view.asked_flag("dry_run"))


def would_create() -> Response:
    """Answer that a definition without problems would be created."""
    return _answer(Outcome.CREATED, ())


class Trial:
    """Stands in place of what stores a definition: it validates, and notes what differs."""

    def __init__(
        self, before: dict[str, Any], check: Callable[..., None], normal: Callable[..., Any]
    ) -> None:
        self._before, self._check, self._normal = before, check, normal
        self._changes: Any = ()

    def __call__(self, *, spec: dict[str, Any], expected_revision: int | None) -> None:
        """Validate; raise `Invalid` as a save would."""
        self._check(spec=spec)
        self._changes = differences(
            {"spec": self._normal(self._before)}, {"spec": self._normal(spec)}
        )

    def answer(self) -> Response:
        """Answer with what would change."""
        return _answer(Outcome.CHANGED if self._changes else Outcome.UNCHANGED, self._changes)


def _answer(outcome: Outcome, changes: Any) -> Response:
    body = TrialBody({"dry_run": True, "outcome": outcome, "changes": changes})
    return Response(body.data, status=200)
