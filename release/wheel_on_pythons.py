"""The wheel on every Python that is here, outside the repository and without a compiler: `make test-wheel`.

Each installs the wheel with the extras below, from wheels alone: at the versions of constraints.txt, and the oldest
Python also at the lowest versions that pyproject.toml allows. WHEEL_PYTHONS names other versions. A Python is looked
for on the path, among those of pyenv and uv, and last in Debian's archive (unpacked into .pythons).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from release import ROOT, debian_python, version
from release.lowest import lowest

EXTRAS = ["disk", "serve"]
PYTHONS = os.environ.get("WHEEL_PYTHONS", "3.11 3.12 3.13 3.14").split()
CASES = [*((one, "newest") for one in PYTHONS), (PYTHONS[0], "lowest")]
FOLDERS = (".pyenv/versions", ".local/share/uv/python")
LABELS = [
    {"item": item, "annotator": who, "label": label}
    for item, label in (("1", "cat"), ("2", "dog"))
    for who in ("ann", "bob", "eve")
]


def interpreter(wanted: str) -> str:
    """Return a working Python of this version; without one, the test is skipped."""
    here = [Path(found) for found in [shutil.which(f"python{wanted}")] if found]
    here += [path for folder in FOLDERS for path in sorted((Path.home() / folder).glob(f"*/bin/python{wanted}"))]
    for path in here:
        code = "import sys, venv; print(sys.version[:4], sys._base_executable)"  # the path may have a starter for all
        asked = subprocess.run([path, "-c", code], capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.startswith(f"{wanted} "):
            return asked.stdout.split(maxsplit=1)[1].strip()
    try:
        return str(debian_python.install(wanted, ROOT / ".pythons" / wanted))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"Python {wanted} is not here, and could not be had from Debian: {error}")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    if named := os.environ.get("WHEEL"):
        return Path(named).resolve()
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.parametrize(("wanted", "versions"), CASES)
def test_the_wheel_runs(wheel, wanted, versions, tmp_path):
    python = interpreter(wanted)
    home, work = tmp_path / "venv", tmp_path / "work"
    work.mkdir()
    empty = {key: text for key, text in os.environ.items() if key.startswith("PIP_") or key in ("LANG", "TMPDIR")}
    empty |= {"PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))}
    empty |= {"HOME": str(work), "PATH": str(home / "bin"), "CC": "no-compiler"}
    empty |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}

    def run(*command):
        done = subprocess.run([str(part) for part in command], cwd=work, env=empty, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    constraints = ROOT / "constraints.txt"
    if versions == "lowest":
        constraints = work / "lowest.txt"
        constraints.write_text("\n".join(lowest(EXTRAS)))
    run(python, "-m", "venv", "--without-pip", home)  # Debian's has none of its own
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", "--only-binary", ":all:", "-c", constraints, f"{wheel}[{','.join(EXTRAS)}]")
    dissensus = home / "bin" / "dissensus"

    assert "aggregate" in run(dissensus, "--help")
    run(dissensus, "list", "datasets", "digits-crowd", "-o", "data")
    plain = ["aggregate", "data/annotations.csv", "--gold", "data/gold.csv", "--gold-use", "score", "--json"]
    known = json.loads(run(dissensus, *plain, "-o", "out"))
    assert known["version"] == version()
    assert known["gold"]["accuracy"] > 0.85
    run(dissensus, "report", "data/annotations.csv", "-o", "report.html")
    assert (work / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    code = "import dissensus.table.io as io; io.write_frame(io.read_frame('data/annotations.csv'), 'labels.parquet')"
    run(home / "bin" / "python", "-c", code)
    method = ["--method", "dawid-skene", "--format", "parquet", "--json"]
    memory = json.loads(run(dissensus, "aggregate", "labels.parquet", *method, "-o", "memory"))
    disk = json.loads(run(dissensus, "aggregate", "labels.parquet", *method, "--engine", "disk", "-o", "disk"))
    assert disk["classes"] == memory["classes"]
    same = "import pyarrow.parquet as p; a, b = (p.read_table(f'{one}/items.parquet') for one in ('disk', 'memory'))"
    assert run(home / "bin" / "python", "-c", f"{same}; print(a['label'] == b['label'], len(a))").split() == [
        "True",
        "1797",
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    service = subprocess.Popen(
        [dissensus, "serve", "--store", "labels.db", "--port", port],
        cwd=work,
        env=empty,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        answer = _use_service(f"http://127.0.0.1:{port}")
        assert (answer["label"], answer["votes"]) == ("cat", {"cat": 3})
    finally:
        service.terminate()
        service.wait(20)


def _use_service(address):
    """Post labels and read an item, once the service is up."""

    def ask(path, what=None):
        data = None if what is None else json.dumps(what).encode()
        with urlopen(Request(address + path, data, {"Content-Type": "application/json"}), timeout=20) as reply:
            return json.load(reply)

    for _ in range(400):
        try:
            ask("/health")
            break
        except OSError:
            time.sleep(0.3)
    ask("/projects", {"name": "pets"})
    ask("/projects/pets/annotations", LABELS)
    return ask("/projects/pets/items/1")
