"""The request for a deploy: its set of changes, its waves, and what counts as good."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from queries.domain.definitions.parsing import shape_problems
from queries.domain.definitions.spec import StrictForm
from queries.domain.deploys.states import OnFailure
from queries.domain.errors import Invalid, Problem

#: The longest time that a deploy waits for one wave, in minutes.
LONGEST = 1440
MOST_CANARIES = 100


#: What goes first: the writers of data, its readers, or neither (then only names decide).
WaveOrder = Literal["upstream", "downstream", "name"]


class Waves(StrictForm):
    """The order of restarts: the canary first, then `size` at a time."""

    canary: tuple[str, ...] = Field(default=(), max_length=MOST_CANARIES)  # queries or applications
    size: int = Field(default=5, ge=1, le=1000)
    first: WaveOrder = "upstream"


class Good(StrictForm):
    """Conditions that each query must meet before the next wave begins."""

    first_commit: bool = True  # an idle trigger satisfies it too
    batches: int = Field(default=0, ge=0, le=1000)  # committed since the restart
    minutes: int = Field(default=0, ge=0, le=LONGEST)  # running without a restart
    lag_not_worse: bool = False  # than before the deploy
    no_new_failures: bool = True
    deadline_minutes: int = Field(default=10, ge=1, le=LONGEST)  # per wave, from its restart


class DeployForm(StrictForm):
    """The request for a deploy; `apply` has the same form as the body of an apply."""

    apply: dict[str, Any]
    waves: Waves = Field(default_factory=Waves)
    good: Good = Field(default_factory=Good)
    on_failure: OnFailure = OnFailure.ROLLBACK
    preflight: bool = False


def parse_deploy(raw: Mapping[str, Any]) -> DeployForm:
    """Return the request; raise `Invalid` with every error by field."""
    try:
        form = DeployForm.model_validate(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    problems = list(_problems(form))
    if problems:
        raise Invalid(problems)
    return form


def _problems(form: DeployForm) -> list[Problem]:
    good, problems = form.good, []
    if good.minutes >= good.deadline_minutes:
        message = f"would not be reached before the deadline of {good.deadline_minutes} min."
        way_out = "Increase good.deadline_minutes."
        problems.append(Problem("good.minutes", str(good.minutes), message, way_out))
    if not (good.first_commit or good.batches or good.minutes):
        way_out = "Set first_commit, batches or minutes."
        problems.append(Problem("good", "", "contains no condition to wait for.", way_out))
    if form.apply.get("dry_run"):
        way_out = "Send it to /api/v1/apply/ instead."
        problems.append(Problem("apply.dry_run", "true", "has no effect on a deploy.", way_out))
    return problems
