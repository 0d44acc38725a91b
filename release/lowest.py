"""Print constraints that hold every dependency at the lowest version that pyproject.toml allows.

python -m release.lowest [EXTRA …] > lowest.txt      # the core, and these extras
"""

from __future__ import annotations

import re
import sys

from release import project


def lowest(extras: list[str]) -> list[str]:
    """`name==version` of the core and of some extras; of several bounds for one name, the highest."""
    about = project()
    found: dict[str, str] = {}
    for line in [*about["dependencies"], *(line for one in extras for line in about["optional-dependencies"][one])]:
        name, bound = re.match(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)", line).groups()  # type: ignore[union-attr]
        found[name] = max(found.get(name, "0"), bound, key=lambda text: [int(part) for part in text.split(".")])
    return [f"{name}=={bound}" for name, bound in found.items()]


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
