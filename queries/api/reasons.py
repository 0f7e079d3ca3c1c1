"""How the API returns a reason: its text for people, and its code for programs."""

from typing import Any

from rest_framework import serializers

from queries.domain.reasons import phrase


class PhraseField(serializers.CharField):
    """A reason in words; its code stands in the field beside it."""

    def to_representation(self, value: Any) -> str:
        """Return the reason's words."""
        return phrase(str(value))


class DetailCodeField(serializers.CharField):
    """The code of what goes on; "" where there is nothing to say."""

    def to_representation(self, value: Any) -> str:
        """Return the code."""
        return value.code.name if value else ""
