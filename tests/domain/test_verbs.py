"""Which verbs would change something, for each desired state and phase."""

import pytest

from queries.domain.states import Desired, Phase, Reason, verbs_of

WANTED, UNWANTED = Desired.RUNNING, Desired.STOPPED


@pytest.mark.parametrize(
    ("desired", "phase", "reason", "verbs"),
    [
        (UNWANTED, Phase.STOPPED, Reason.NEVER_STARTED, ["start"]),
        (UNWANTED, Phase.STOPPING, "", ["start", "stop-now"]),
        (UNWANTED, Phase.STOPPING, Reason.STUCK, ["start", "stop-now", "end-driver"]),
        (WANTED, Phase.RUNNING, "", ["stop", "restart"]),
        (WANTED, Phase.FAILED, "", ["start", "stop"]),
        (WANTED, Phase.RUNNING, Reason.WAITS_THREAD, ["stop", "end-driver"]),
    ],
)
def test_the_verbs_that_change_something(
    desired: str, phase: str, reason: str, verbs: list[str]
) -> None:
    assert verbs_of(desired, phase, reason) == verbs
