"""What turns a checkout into a release; not part of the wheel."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def project() -> dict[str, Any]:
    """Read the table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def version() -> str:
    """Read the version from the package."""
    text = (ROOT / "src" / "dissensus" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, flags=re.MULTILINE)[1]  # type: ignore[index]
