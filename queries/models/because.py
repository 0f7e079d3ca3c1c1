"""How rows store a `Because`: as JSON, a code with its values."""

from typing import Any

from django.db import models

from queries.domain.reasons import Because


class BecauseField(models.JSONField):
    """A `Because`, stored as JSON; {} where there is nothing to say."""

    _pyi_private_set_type: Because
    _pyi_private_get_type: Because

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"default": Because, **kwargs})

    def deconstruct(self) -> Any:
        """Return a plain JSON field: the database does not know `Because`."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, {**kwargs, "default": dict}

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Because:
        """Return what the row says; a join to no row says nothing."""
        return Because.of(super().from_db_value(value, expression, connection) or {})

    def get_prep_value(self, value: Any) -> Any:
        """Return the JSON form of what is written, or compared with."""
        return super().get_prep_value(value.as_json() if isinstance(value, Because) else value)

    def value_to_string(self, obj: models.Model) -> Any:
        """Return what `dumpdata` writes: the JSON form."""
        return self.value_from_object(obj).as_json()
