"""How the API returns a reason: text for users, a code for programs."""

from typing import Any

from rest_framework import serializers

from queries.domain.reasons import phrase


class PhraseField(serializers.CharField):
    """A reason in words; its code is in the field next to it."""

    def to_representation(self, value: Any) -> str:
        """Return the reason's words."""
        return phrase(str(value))


class DetailCodeField(serializers.CharField):
    """The code for the current situation; "" if there is nothing to report."""

    def to_representation(self, value: Any) -> str:
        """Return the code."""
        return value.code.name if value else ""
