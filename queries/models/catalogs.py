"""Iceberg catalogs that admins declare."""

from typing import ClassVar

from django.db import models

from queries.domain.catalogs import CatalogAuth, CatalogSpec, CatalogType
from queries.models.access.accounts import Team


class Catalog(models.Model):
    """A catalog service that applications of its teams can use by its name."""

    name = models.CharField(max_length=80, unique=True)
    type = models.CharField(max_length=4, choices=[(k, k) for k in CatalogType])
    address = models.CharField(max_length=1000)
    warehouse = models.CharField(max_length=1000, default="")
    properties = models.JSONField(default=dict)
    secret = models.CharField(max_length=200, default="")  # "env:NAME" or "file:NAME"
    auth = models.CharField(max_length=10, choices=[(k, k) for k in CatalogAuth])
    vended = models.BooleanField(default=False)
    teams = models.ManyToManyField(Team)  # none: every application
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> CatalogSpec:
        """Return the catalog as a driver gets it."""
        return CatalogSpec(
            name=self.name,
            type=CatalogType(self.type),
            address=self.address,
            warehouse=self.warehouse,
            properties=self.properties,
            secret=self.secret,
            auth=CatalogAuth(self.auth),
            vended=self.vended,
        )
