"""How rows store a `Because`: as JSON, a code with its values."""

from typing import Any

from django.db import models

from queries.domain.reasons import Because


class BecauseField(models.JSONField):
    """A `Because`, stored as JSON; {} if there is none."""

    _pyi_private_set_type: Because
    _pyi_private_get_type: Because

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"default": Because, **kwargs})

    def deconstruct(self) -> Any:
        """Return a plain JSON field: migrations do not know `Because`."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, {**kwargs, "default": dict}

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Because:
        """Return the stored value; empty for a join without a row."""
        return Because.of(super().from_db_value(value, expression, connection) or {})

    def get_prep_value(self, value: Any) -> Any:
        """Return the JSON form of a value to write or compare with."""
        return super().get_prep_value(value.as_json() if isinstance(value, Because) else value)

    def value_to_string(self, obj: models.Model) -> Any:
        """Return the JSON form that `dumpdata` writes."""
        return self.value_from_object(obj).as_json()
