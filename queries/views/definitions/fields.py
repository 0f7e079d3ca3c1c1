"""Form fields for values that HTML has no input for: options, secrets, lists.

Each field keeps the text as it was typed, so that a page shown again loses nothing.
`form_field` gives the one for a type; its words and its look are said in the template.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from django import forms

from queries.domain.characters import refuse_characters
from queries.domain.errors import Invalid
from queries.selectors.definitions.connectors import ready_connectors

INPUT = {"class": "form-control form-control-sm", "autocomplete": "off", "spellcheck": "false"}
BOX = {"class": "form-check-input"}


class PairsField(forms.CharField):
    """Lines of `key = value`; the value is a dict of strings in the order typed."""

    def to_python(self, value: Any) -> Any:
        """Return the dict; name the first line that cannot be read."""
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
        """Return the lines to show for a dict, or the text as it was typed."""
        if isinstance(value, Mapping):
            return "\n".join(f"{key} = {held}" for key, held in value.items())
        return value


class LinesField(forms.CharField):
    """One entry a line; the value is a list of the lines that hold something."""

    between = "\n"

    def to_python(self, value: Any) -> Any:
        """Return the entries, stripped."""
        entries = str(value or "").replace("\r", "\n").split(self.between.strip(" "))
        return [entry.strip() for entry in entries if entry.strip()]

    def prepare_value(self, value: Any) -> Any:
        """Return the text to show for a list, or the text as it was typed."""
        return self.between.join(value) if isinstance(value, list | tuple) else value


class CommasField(LinesField):
    """Names between commas."""

    between = ", "


class _ConnectorBoxes(forms.CheckboxSelectMultiple):
    """A box for each connector that is ready, and for those that are named all the same."""

    def optgroups(self, name: str, value: list[str], attrs: Any = None) -> Any:
        """Return the boxes; an unknown name keeps its box, or saving would drop it unseen."""
        known = sorted(ready_connectors() | set(filter(None, value)))
        self.choices = [(each, each) for each in known]
        return super().optgroups(name, value, attrs)


class ConnectorsField(forms.MultipleChoiceField):
    """Connectors by name; whether each is ready is the catalog's to say."""

    widget = _ConnectorBoxes(BOX)

    def valid_value(self, value: Any) -> bool:
        """Let every name through."""
        return True


class ObjectField(forms.CharField):
    """A JSON object; the value is a dict."""

    def to_python(self, value: Any) -> Any:
        """Return the object; say where the JSON cannot be read."""
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
            raise forms.ValidationError("Give a JSON object: names and values between { and }.")
        try:
            refuse_characters(read)
        except Invalid as error:
            said = [f"{one.field} {one.message} {one.way_out}" for one in error.problems]
            raise forms.ValidationError(said) from None
        return read

    def prepare_value(self, value: Any) -> Any:
        """Return the JSON to show for a dict, or the text as it was typed."""
        if isinstance(value, Mapping):
            return json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        return value


class TextField(forms.CharField):
    """Text, with the line ends that a file has."""

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
    """Return the form field for values of a type; what it looks like is the template's to say."""
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
