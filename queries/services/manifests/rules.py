"""Plan the alert rules of a set."""

from queries.domain.errors import Problem
from queries.models.alerts import AlertRule, Channel
from queries.selectors.manifests import states
from queries.services.manifests.works import Work


def plan_rules(works: list[Work]) -> None:
    """Compare rules with what is there, and note channels that are not."""
    known = set(Channel.objects.values_list("name", flat=True)) if works else set()
    for work in works:
        assert work.manifest is not None
        if isinstance(work.row, AlertRule):
            work.before = states.of_rule(work.row)
        work.after = states.of_manifest(work.manifest, work.manifest.spec)
        work.compare()
        for field in ("channels", "escalate_to"):
            work.problems += [
                Problem(
                    f"spec.{field}.{index}",
                    name[:200],
                    "is no channel.",
                    f"Channels: {', '.join(sorted(known)) or 'none yet'}.",
                )
                for index, name in enumerate(work.after["spec"][field])
                if name not in known
            ]
