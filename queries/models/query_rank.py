"""How a query stands by its own columns: kept by the database, so that lists sort by an index."""

from enum import IntEnum

from django.db.models import (
    BooleanField,
    Case,
    F,
    GeneratedField,
    PositiveSmallIntegerField,
    Q,
    Value,
    When,
)

from queries.domain.states import (
    HANGING_REASONS,
    JUDGED_PHASES,
    STOPPED_PHASES,
    TROUBLED_PHASES,
    TROUBLED_VERDICTS,
    Desired,
    Hold,
    Phase,
)


class Rank(IntEnum):
    """Whom to look at first: the order of a list."""

    AT_RISK = 0  # unread records are about to be deleted
    TROUBLED = 1
    CALM = 2


def _is(condition: Q) -> Case:
    return Case(When(condition, then=Value(True)), default=Value(False))


_TROUBLED = (
    Q(phase__in=sorted(TROUBLED_PHASES))
    | Q(phase__in=tuple(sorted(JUDGED_PHASES)), verdict__in=sorted(TROUBLED_VERDICTS))
    | Q(phase_reason__in=sorted(HANGING_REASONS))
    | Q(desired=Desired.RUNNING, source_unreachable_since__isnull=False)  # it is cut off
)
#: Desired and actual differ, and nobody has to act.
_CHANGING = Q(desired=Desired.STOPPED) & ~Q(phase__in=sorted(STOPPED_PHASES)) | ~Q(
    desired=Desired.STOPPED
) & ~Q(phase=Phase.RUNNING) & (Q(hold=Hold.NONE) | ~Q(generation=F("seen_generation")))


def rank_field() -> GeneratedField:
    """Return the column of the `Rank` that the row's other columns give it."""
    return GeneratedField(
        expression=Case(
            When(~Q(risk=""), then=Value(Rank.AT_RISK.value)),
            When(_TROUBLED, then=Value(Rank.TROUBLED.value)),
            default=Value(Rank.CALM.value),
        ),
        output_field=PositiveSmallIntegerField(),
        db_persist=True,
    )


def changing_field() -> GeneratedField:
    """Return the column that tells whether desired and actual differ, and nobody has to act."""
    return GeneratedField(expression=_is(_CHANGING), output_field=BooleanField(), db_persist=True)
