"""Teams, and what an admin has given one account beside its role. Only admins write these."""

from typing import ClassVar

from django.conf import settings
from django.db import models


class Team(models.Model):
    """People who act on the same applications."""

    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="teams")

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class Grant(models.Model):
    """What one account has beside its role; an account without a row has neither."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="grant"
    )
    all_teams = models.BooleanField(default=False)  # acts on the applications of every team
    write_python = models.BooleanField(default=False)  # may bring code into drivers

    def __str__(self) -> str:
        return f"grants of {self.user.get_username()}"
