"""Form fields for the shapes that Spark's definitions have and HTML has not.

Each field keeps the text as it was typed, so that a page shown again loses nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

from django import forms

from queries.selectors.definitions.connectors import ready_connectors

INPUT = {"class": "form-control form-control-sm", "autocomplete": "off", "spellcheck": "false"}
MONO = {**INPUT, "class": "form-control form-control-sm font-monospace"}
SELECT = {"class": "form-select form-select-sm"}


def text(label: str, *, hint: str = "", placeholder: str = "", **more: Any) -> forms.CharField:
    """Return a one-line field; required unless told otherwise."""
    more.setdefault("required", False)
    attrs = {**(MONO if more.pop("mono", False) else INPUT), **more.pop("attrs", {})}
    if placeholder:
        attrs["placeholder"] = placeholder
    return forms.CharField(label=label, help_text=hint, widget=forms.TextInput(attrs=attrs), **more)


def number(label: str, *, hint: str = "", whole: bool = False, **more: Any) -> forms.Field:
    """Return a field for a number with aligned digits."""
    kind = forms.IntegerField if whole else forms.FloatField
    attrs = {"class": "form-control form-control-sm", "inputmode": "decimal"}
    more.setdefault("required", False)
    return kind(label=label, help_text=hint, widget=forms.TextInput(attrs=attrs), **more)


def choice(label: str, choices: list[tuple[str, str]], *, hint: str = "") -> forms.ChoiceField:
    """Return a drop-down of (value, words)."""
    return forms.ChoiceField(
        label=label,
        help_text=hint,
        choices=choices,
        required=False,
        widget=forms.Select(attrs=SELECT),
    )


def area(rows: int, placeholder: str = "", **attrs: str) -> forms.Textarea:
    """Return a monospaced box of so many rows."""
    more = {"placeholder": placeholder} if placeholder else {}
    return forms.Textarea(attrs={**MONO, "rows": str(rows), **more, **attrs})


class PairsField(forms.CharField):
    """Lines of `key = value`; the value is a dict of strings in the order typed."""

    def __init__(self, label: str, *, hint: str = "", placeholder: str = "", rows: int = 3) -> None:
        super().__init__(
            label=label,
            help_text=hint,
            required=False,
            strip=False,
            widget=area(rows, placeholder),
        )

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

    def __init__(self, label: str, *, hint: str = "", placeholder: str = "", rows: int = 2) -> None:
        super().__init__(
            label=label, help_text=hint, required=False, widget=area(rows, placeholder)
        )

    def to_python(self, value: Any) -> Any:
        """Return the lines, stripped."""
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        """Return the lines to show for a list, or the text as it was typed."""
        return "\n".join(value) if isinstance(value, list | tuple) else value


class _ConnectorBoxes(forms.CheckboxSelectMultiple):
    """A box for each connector that stands ready, and for those that are named all the same."""

    def optgroups(self, name: str, value: list[str], attrs: Any = None) -> Any:
        """Return the boxes; an unknown name keeps its box, or saving would drop it unseen."""
        known = sorted(ready_connectors() | set(filter(None, value)))
        self.choices = [(each, each) for each in known]
        return super().optgroups(name, value, attrs)


class ConnectorsField(forms.MultipleChoiceField):
    """Connectors by name; whether each stands ready is the catalog's to say."""

    def __init__(self) -> None:
        super().__init__(
            label="Connectors",
            help_text="Installed jars that the driver is started with.",
            required=False,
            widget=_ConnectorBoxes(attrs={"class": "form-check-input"}),
        )

    def valid_value(self, value: Any) -> bool:
        """Let every name through."""
        return True


class CommasField(forms.CharField):
    """Names between commas; the value is a list."""

    def __init__(self, label: str, *, hint: str = "", placeholder: str = "") -> None:
        widget = forms.TextInput(attrs={**MONO, "placeholder": placeholder})
        super().__init__(label=label, help_text=hint, required=False, widget=widget)

    def to_python(self, value: Any) -> Any:
        """Return the names, stripped."""
        return [name.strip() for name in str(value or "").split(",") if name.strip()]

    def prepare_value(self, value: Any) -> Any:
        """Return the names to show for a list, or the text as it was typed."""
        return ", ".join(value) if isinstance(value, list | tuple) else value


class ObjectField(forms.CharField):
    """A JSON object; the value is a dict."""

    def __init__(self, label: str, *, hint: str = "", placeholder: str = "", rows: int = 4) -> None:
        super().__init__(
            label=label, help_text=hint, required=False, widget=area(rows, placeholder)
        )

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
        return read

    def prepare_value(self, value: Any) -> Any:
        """Return the JSON to show for a dict, or the text as it was typed."""
        if isinstance(value, Mapping):
            return json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        return value
