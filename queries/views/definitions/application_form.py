"""The forms for an application's definition and for a scheduler pool."""

from typing import Any

from queries.domain.definitions.spec import ApplicationSpec, PoolSpec
from queries.views.definitions.fields import ConnectorsField, form_field
from queries.views.definitions.spec_form import SpecForm, drop_empty_schedule


class ApplicationSpecForm(SpecForm):
    """An application's definition."""

    shape = ApplicationSpec

    connectors = ConnectorsField(required=False)

    def spec(self, **rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the definition; without anything that starts the script, it has no schedule."""
        spec = super().spec(**rows)
        drop_empty_schedule(spec)
        return spec

    def changed_schedule(self) -> bool:
        """Return whether a field of the schedule differs from its default or has an error."""
        return self.changed("schedule")

    def changed_policy(self) -> bool:
        """Return whether a restart setting differs from its default or has an error."""
        return self.changed("policy")


class NewApplicationForm(ApplicationSpecForm):
    """A new application: its name and its definition."""

    name = form_field(str, required=True)
    team = form_field(str)


class PoolForm(SpecForm):
    """A scheduler pool."""

    shape = PoolSpec

    name = form_field(str, required=True)
