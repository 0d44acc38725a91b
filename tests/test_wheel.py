"""The wheel: built from the sources, it installs into an empty environment and runs there."""

import csv
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import dissensus

ROOT = Path(__file__).parent.parent


def run(*command, **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_wheel_installs_and_runs_from_an_empty_environment(tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.startswith(f"dissensus-{dissensus.__version__}-")
    with zipfile.ZipFile(wheel) as archive:  # neither the papers nor the benchmarks are installed
        folders = {name.split("/")[0] for name in archive.namelist()}
    assert folders == {"dissensus", f"dissensus-{dissensus.__version__}.dist-info"}
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    binaries = tmp_path / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", binaries / "python", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", "--no-compile", "-c", ROOT / "constraints.txt", wheel, env=environment)
    (tmp_path / "labels.csv").write_text("task,worker,label\na,1,yes\na,2,yes\nb,1,no\nb,3,no\n", encoding="utf-8")
    run(binaries / "dissensus", "aggregate", "labels.csv", "-o", "out", cwd=tmp_path, env=environment)
    items = (tmp_path / "out" / "items.csv").read_text(encoding="utf-8").splitlines()
    assert items[0] == "item,label,confidence,votes,labels,status,reason,p_no,p_yes"
    assert [row[:2] for row in csv.reader(items[1:])] == [["a", "yes"], ["b", "no"]]
    typed = run(
        binaries / "python",
        "-c",
        "import dissensus, pathlib; print(pathlib.Path(dissensus.__file__).parent)",
        env=environment,
    )
    assert (Path(typed.strip()) / "py.typed").exists()
