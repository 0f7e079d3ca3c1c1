"""Recent wrong tokens by address, counted across all web processes."""

from typing import ClassVar

from django.db import models


class TokenGuess(models.Model):
    """One wrong token of one address; repeating it is the same guess."""

    address = models.CharField(max_length=45)
    name = models.CharField(max_length=16)  # a keyed digest: the text may be a password
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["address", "name"], name="one_row_a_guess")
        ]

    def __str__(self) -> str:
        return f"a wrong token from {self.address}"
