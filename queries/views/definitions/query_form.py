"""The form of a query: its definition's fields, and what is asked once, when it is created."""

from django import forms

from queries.domain.definitions.spec import QuerySpec, Shown
from queries.views.definitions.fields import form_field
from queries.views.spec_form import SpecForm


class QueryForm(SpecForm):
    """What a query has once: name, kind, SQL or function, sink, trigger, where it runs."""

    shape = QuerySpec

    name = form_field(
        Shown("Name", "Lower-case letters, digits and . _ - It cannot be changed later.")
    )
    kind = forms.ChoiceField(
        choices=[("sql", "SQL"), ("python", "Python")],
        widget=forms.RadioSelect,
        initial="sql",
        label="Kind",
    )
    home = forms.ChoiceField(
        label="Runs in",
        choices=[("own", "a driver of its own"), ("shared", "a shared application")],
        required=False,
        widget=forms.RadioSelect,
        initial="own",
    )
    application = form_field(
        Shown(
            "Application",
            "The name of a shared application; its queries share one driver.",
            attrs={"list": "application-names"},
        )
    )
    checkpoint = form_field(
        Shown(
            "Checkpoint location",
            "Absolute. Empty: a folder named like the query in Headgate's own.",
            mono=True,
        )
    )
