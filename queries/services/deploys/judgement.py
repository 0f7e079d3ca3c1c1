"""Evaluate a change on the revision that it was restarted on, forward and back."""

from dataclasses import replace

from queries.domain.deploys.forms import Good
from queries.domain.deploys.judging import ChangeResult, judge
from queries.domain.deploys.states import ChangeKind
from queries.domain.states import Desired, Phase
from queries.models.deploys.receipts import DeployChange
from queries.selectors.deploys.applications import application_runs, of_application
from queries.selectors.deploys.evidence import DeployEvidence, of_query
from queries.services.deploys.steps import DeployStep


def ran_before(change: DeployChange) -> bool:
    """Return whether a query, a script or a driver runs now, before its wave is written."""
    if change.kind == ChangeKind.APPLICATION:
        return change.application is not None and application_runs(change.application)
    query = change.query
    return query is not None and query.desired == Desired.RUNNING and query.phase == Phase.RUNNING


def judged(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether a change works well on the revision that the deploy has written."""
    assert change.to_revision is not None, "it was written"
    evidence = _evidence(step, change, change.to_revision)
    change.evidence = {**change.evidence, **evidence.stored}
    change.first_batch = evidence.first_batch
    return judge(step.good, evidence.observed, now=step.now)


def judged_back(step: DeployStep, change: DeployChange, good: Good) -> ChangeResult:
    """Return whether everything that ran before a change runs again, on the former definition."""
    revision = change.back_revision or change.from_revision
    assert revision is not None, "what ran before has a revision"
    evidence = _evidence(step, change, revision)
    change.evidence = {**change.evidence, "back": evidence.stored}
    return judge(good, replace(evidence.observed, unstarted_since=None), now=step.now)


def _evidence(step: DeployStep, change: DeployChange, revision: int) -> DeployEvidence:
    look = of_application if change.kind == ChangeKind.APPLICATION else of_query
    return look(change, revision, now=step.now)
