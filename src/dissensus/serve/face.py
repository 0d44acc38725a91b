"""Words of messages in the service: parameters are called by their JSON field."""

from __future__ import annotations

import json

from dissensus.messages import Face


def field_words(parameter: str) -> str:
    """Return the JSON field for a parameter, with its value if there is one.

    >>> field_words("per_item"), field_words("kind='sets'"), field_words("wide=True"), field_words("count=3")
    ('"per_item"', '"kind": "sets"', '"wide": true', '"count": 3')
    """
    name, has_value, value = parameter.partition("=")
    if not has_value:
        return json.dumps(name)
    words = {"True": "true", "False": "false", "None": "null"}
    number = value.lstrip("-").replace(".", "", 1).isdigit()
    return f"{json.dumps(name)}: {words.get(value) or (value if number else json.dumps(value.strip(chr(39))))}"


HTTP_FACE = Face(field_words)
