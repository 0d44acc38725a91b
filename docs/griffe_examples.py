"""Add the heading "Examples" of NumPy style to docstrings, for mkdocstrings; our docstrings do not have it."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension


class ExamplesHeading(Extension):  # type: ignore[misc]  # griffe has its own checks
    """Puts "Examples" above the first `>>>` of a docstring that has no such heading."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Rewrite the docstring of an object."""
        text = obj.docstring.value if obj.docstring else ""
        before, prompt, after = text.partition(">>> ")
        if prompt and not re.search(r"\nExamples\n-+\s*$", before):
            obj.docstring.value = f"{before.rstrip()}\n\nExamples\n--------\n{prompt}{after}"
