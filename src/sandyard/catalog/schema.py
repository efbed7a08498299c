"""The JSON Schema of a card, for editors: written from the models, never by hand."""

from __future__ import annotations

import json

from sandyard.catalog.models import Card


def schema_text() -> str:
    """The schema as a file holds it, the same bytes each time."""
    schema = Card.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
