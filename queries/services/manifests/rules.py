"""Plan the alert rules of a set."""

from queries.domain.errors import Problem
from queries.models.alerts import AlertRule, Channel
from queries.selectors.manifests import states
from queries.services.manifests.items import SetItem


def plan_rules(items: list[SetItem]) -> None:
    """Compare rules with the existing ones, and record missing channels."""
    known = set(Channel.objects.values_list("name", flat=True)) if items else set()
    for item in items:
        assert item.manifest is not None
        if isinstance(item.row, AlertRule):
            item.before = states.of_rule(item.row)
        item.after = states.of_manifest(item.manifest, item.manifest.spec)
        item.compare()
        for field in ("channels", "escalate_to"):
            item.problems += [
                Problem(
                    f"spec.{field}.{index}",
                    name[:200],
                    "is not an existing channel.",
                    f"Channels: {', '.join(sorted(known)) or 'none yet'}.",
                )
                for index, name in enumerate(item.after["spec"][field])
                if name not in known
            ]
