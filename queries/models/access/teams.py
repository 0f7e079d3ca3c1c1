"""Teams, and an account's grants besides its role. Only admins can change these."""

from typing import ClassVar

from django.conf import settings
from django.db import models


class Team(models.Model):
    """Users who can act on the same applications."""

    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="teams")

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class Grant(models.Model):
    """An account's grants besides its role; an account without a row has none."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="grant"
    )
    all_teams = models.BooleanField(default=False)  # can act on every team's applications
    write_python = models.BooleanField(default=False)  # can bring code into drivers

    def __str__(self) -> str:
        return f"grants of {self.user.get_username()}"
