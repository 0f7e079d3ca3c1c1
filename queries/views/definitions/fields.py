"""Form fields for values that have no HTML input: options, secrets, lists.

Each field keeps the text as typed, so that no input is lost when the page is shown again.
`form_field` returns the field for a type; its label and appearance are set in the template.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from django import forms

from queries.domain.characters import refuse_characters
from queries.domain.errors import Invalid
from queries.domain.sparks import SPARKS
from queries.selectors.definitions.connectors import ready_connectors

INPUT = {"class": "form-control form-control-sm", "autocomplete": "off", "spellcheck": "false"}
BOX = {"class": "form-check-input"}


class PairsField(forms.CharField):
    """Lines of `key = value`; the value is a dict of strings in the typed order."""

    def to_python(self, value: Any) -> Any:
        """Return the dict; report the first line that cannot be parsed."""
        pairs: dict[str, str] = {}
        for number_, line in enumerate(str(value or "").splitlines(), start=1):
            if not line.strip():
                continue
            key, equals, rest = line.partition("=")
            key = key.strip()
            if not equals or not key:
                raise forms.ValidationError(
                    f"Line {number_} ({line.strip()[:60]!r}) is not “key = value”."
                )
            if key in pairs:
                raise forms.ValidationError(f"Line {number_} repeats {key!r}. Keep one of them.")
            pairs[key] = rest.strip()
        return pairs

    def prepare_value(self, value: Any) -> Any:
        """Return the lines to show for a dict, or the text as typed."""
        if isinstance(value, Mapping):
            return "\n".join(f"{key} = {held}" for key, held in value.items())
        return value


class LinesField(forms.CharField):
    """One entry per line; the value is a list of the non-empty lines."""

    between = "\n"

    def to_python(self, value: Any) -> Any:
        """Return the entries, stripped."""
        entries = str(value or "").replace("\r", "\n").split(self.between.strip(" "))
        return [entry.strip() for entry in entries if entry.strip()]

    def prepare_value(self, value: Any) -> Any:
        """Return the text to show for a list, or the text as typed."""
        return self.between.join(value) if isinstance(value, list | tuple) else value


class CommasField(LinesField):
    """Comma-separated names."""

    between = ", "


class _ConnectorBoxes(forms.CheckboxSelectMultiple):
    """A checkbox for each available connector, and for each selected one that is not available."""

    def optgroups(self, name: str, value: list[str], attrs: Any = None) -> Any:
        """Return the boxes; an unknown name keeps its box, so that saving does not drop it."""
        known = sorted(
            {one for spark in SPARKS for one in ready_connectors(spark)} | set(filter(None, value))
        )
        self.choices = [(each, each) for each in known]
        return super().optgroups(name, value, attrs)


class ConnectorsField(forms.MultipleChoiceField):
    """Connectors by name; the catalog checks whether each is available."""

    widget = _ConnectorBoxes(BOX)

    def valid_value(self, value: Any) -> bool:
        """Accept every name."""
        return True


class ObjectField(forms.CharField):
    """A JSON object; the value is a dict."""

    def to_python(self, value: Any) -> Any:
        """Return the object; report where the JSON cannot be parsed."""
        typed = str(value or "").strip()
        if not typed:
            return {}
        try:
            read = json.loads(typed)
        except json.JSONDecodeError as error:
            raise forms.ValidationError(
                f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
            ) from error
        if not isinstance(read, dict):
            raise forms.ValidationError("Enter a JSON object: names and values between { and }.")
        try:
            refuse_characters(read)
        except Invalid as error:
            said = [f"{one.field} {one.message} {one.way_out}" for one in error.problems]
            raise forms.ValidationError(said) from None
        return read

    def prepare_value(self, value: Any) -> Any:
        """Return the JSON to show for a dict, or the text as typed."""
        if isinstance(value, Mapping):
            return json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        return value


class TextField(forms.CharField):
    """Text with Unix line endings."""

    def to_python(self, value: Any) -> str:
        """Return the text without the carriage returns that browsers send."""
        return str(super().to_python(value) or "").replace("\r\n", "\n")


_FIELDS: dict[Any, type[forms.Field]] = {
    bool: forms.BooleanField,
    int: forms.IntegerField,
    float: forms.FloatField,
    str: TextField,
    tuple: LinesField,
}


def form_field(kind: Any, **more: Any) -> forms.Field:
    """Return the form field for values of a type; the template sets its appearance."""
    more.setdefault("required", False)
    if get_origin(kind) is Literal:
        widget: forms.Widget = forms.Select({"class": "form-select form-select-sm"})
        choices = [(value, value) for value in get_args(kind)]
        return forms.ChoiceField(choices=choices, widget=widget, **more)
    if get_origin(kind) is dict:
        make: type[forms.Field] = ObjectField if get_args(kind)[1] is Any else PairsField
    else:
        make = _FIELDS[get_origin(kind) or kind]
    if make is forms.BooleanField:
        widget = forms.CheckboxInput(BOX)
    elif issubclass(make, forms.IntegerField):
        widget = forms.TextInput({"class": INPUT["class"], "inputmode": "decimal"})
    else:
        widget = forms.TextInput(INPUT)
    return make(widget=widget, **more)
