"""The form of a query: its definition's fields, and those needed only to create it."""

from django import forms

from queries.domain.definitions.spec import QuerySpec
from queries.views.definitions.fields import INPUT, CommasField, form_field
from queries.views.definitions.spec_form import SpecForm


class QueryForm(SpecForm):
    """The single-valued fields of a query: name, kind, SQL or function, sink, trigger…"""

    shape = QuerySpec

    name = form_field(str)
    kind = forms.ChoiceField(
        choices=[("sql", "SQL"), ("python", "Python")], widget=forms.RadioSelect
    )
    sink_partition_by = CommasField(required=False, widget=forms.TextInput(INPUT))
    home = forms.ChoiceField(
        choices=[("own", "a separate driver"), ("shared", "a shared application")],
        required=False,
        widget=forms.RadioSelect,
    )
    application = form_field(str)
    team = form_field(str)
    checkpoint = form_field(str)
