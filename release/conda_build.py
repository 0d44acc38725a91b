"""Build the conda recipe with rattler-build, without a network: `.rattler/bin/python -m release.conda_build dist`.

The recipe is taken as it is but for its source, which is the archive in `dist`, and the Python of the build, which is
the one that runs this. Python, pip and hatchling come from a channel that is made here, whose packages only link to
them. What the package needs to run is not installed, so the recipe's own tests are not run; its files must be those of
the wheel.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from rattler_build import Package, Stage0Recipe, assemble_package

from release import ROOT, version

RECIPE = ROOT / "release" / "recipe" / "recipe.yaml"
TOOLS = ("pip", "hatchling")


def channel(folder: Path) -> str:
    """Make a channel with the running Python and its tools."""
    place = folder / "linux-64"
    prefix, base = folder / "prefix", Path(sys._base_executable)  # type: ignore[attr-defined]
    packages = prefix / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(base)
    (prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (packages / "tools.pth").write_text(f"{Path(sys.prefix, *packages.parts[-3:])}\n")
    made = [assemble_package("python", platform.python_version(), "linux-64", "0", place, files_dir=prefix)]
    made += [assemble_package(name, "99", "linux-64", "0", place) for name in TOOLS]
    entries = {}
    for one in made:
        path = Path(one.path)
        about = Package.from_file(path)
        entries[path.name] = {
            "name": about.name, "version": about.version, "build": about.build_string, "build_number": 0,
            "depends": [], "subdir": "linux-64", "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }  # fmt: skip
    for subdir, there in (("linux-64", entries), ("noarch", {})):
        (folder / subdir).mkdir(exist_ok=True)
        index = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": there}
        (folder / subdir / "repodata.json").write_text(json.dumps(index))
    return folder.as_uri()


def main() -> None:
    """Build, and say what is in the package."""
    folder, name = Path(sys.argv[1]).resolve(), f"dissensus-{version()}"
    text = RECIPE.read_text(encoding="utf-8")
    text, urls = re.subn(r"url: .*\n  sha256: .*", f"path: {folder / name}.tar.gz", text)
    text, pythons = re.subn(r"python 3\.11\.\*", f"python {platform.python_version()}.*", text)
    assert (urls, pythons) == (1, 1), "the recipe has another source or host than this expects"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl") as wheel:
        wanted = {one for one in wheel.namelist() if one.startswith("dissensus/")}
    with tempfile.TemporaryDirectory() as work:
        (variant,) = Stage0Recipe.from_yaml(text, recipe_dir=Path(work, "recipe")).render()
        built = variant.run_build(output_dir=Path(work, "out"), channels=[channel(Path(work, "channel"))])
        package = Package.from_file(Path(built.packages[0]))
        files = {str(one).removeprefix("site-packages/") for one in package.files}
    if different := sorted(wanted ^ {one for one in files if one.startswith("dissensus/")}):
        sys.exit(f"the conda package and the wheel differ in {len(different)} files, such as {different[0]}")
    print(f"{package.filename}: {len(files)} files, needs {', '.join(package.depends)}")


if __name__ == "__main__":
    main()
