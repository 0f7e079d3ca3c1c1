"""The JSON Schema of a manifest, for editors: made from the models alone."""

from typing import Any

from queries.domain.manifests.forms import MANIFEST


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one manifest."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headgate manifest",
        **MANIFEST.json_schema(by_alias=True),
    }
