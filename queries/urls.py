"""Addresses of the pages; each module of views brings its own list."""

from importlib import import_module
from importlib.util import find_spec

from django.urls import URLPattern, URLResolver

_MODULES = (
    "shell",
    "overview",
    "lists",
    "query",
    "actions",
    "live",
    "failures",
    "runs",
    "applications",
    "checkpoints",
    "audit",
    "access",
    "forms",
)

urlpatterns: list[URLPattern | URLResolver] = []
for _name in _MODULES:
    if find_spec(f"queries.views.{_name}"):  # TEMPORARY: becomes a plain import when all are there
        urlpatterns += import_module(f"queries.views.{_name}").urlpatterns
