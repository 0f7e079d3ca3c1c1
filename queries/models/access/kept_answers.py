"""Responses to requests with an Idempotency-Key, stored for repeated requests."""

from typing import ClassVar

from django.db import models


class KeptAnswer(models.Model):
    """One key of one user: the request and its response, stored for a day."""

    user = models.CharField(max_length=150)  # user name
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)  # of method, address and body
    status = models.IntegerField(null=True)  # null while it is being answered
    headers = models.JSONField(default=dict)  # Location, ETag
    body = models.JSONField(null=True)  # secrets masked
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "key"], name="kept_answer_key")
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.user}"
