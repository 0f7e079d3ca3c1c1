"""The forms for an application's definition and for a scheduler pool."""

from queries.domain.definitions.spec import ApplicationSpec, PoolSpec
from queries.views.definitions.fields import ConnectorsField, form_field
from queries.views.definitions.spec_form import SpecForm


class ApplicationSpecForm(SpecForm):
    """An application's definition."""

    shape = ApplicationSpec

    connectors = ConnectorsField(required=False)

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
