"""A million annotations in the store and fifty people who label: how long a request takes, and what the service costs.

    python -m benchmarks.serve.load [--store sqlite|postgres] [--clients 50] [--seconds 120] [--annotations 1000000]
        [--pause 0] [--floor]

from the repository's root. Every client has a connection and a token of its own and goes on without a pause: it asks
for its next item, posts a label, and reads the item back, which must hold the label. Clients run in one process beside
the service's: on a machine with two cores both are busy. `--floor` puts a FastAPI application that does nothing in the
service's place. PostgreSQL is started by the benchmark, in a temporary folder, as a user who is not root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from dissensus.serve.events import Event
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from dissensus.serve.tokens import TokenStore

LABELS_PER_ITEM = 5
ANNOTATORS = 500
CLASSES = ("bird", "cat", "dog", "fish")
RIGHT = 0.75  # share of labels that are right on purpose
CHUNK = 20_000  # events of one append
WARM_SECONDS = 3.0  # Time at the start that is not counted.
FLOOR = (
    "from fastapi import FastAPI, Request, Response\n"
    "from fastapi.responses import JSONResponse\n"
    "app = FastAPI()\n"
    "@app.get('/{path:path}')\n"
    "async def get(path: str, request: Request) -> Response:\n"
    "    return JSONResponse({'items': [{'item': 'i'}], 'stop': None, 'annotations': []})\n"
    "@app.post('/{path:path}')\n"
    "async def post(path: str, request: Request) -> Response:\n"
    "    await request.body()\n"
    "    return JSONResponse({'accepted': 1})\n"
)


def fill(where: str, annotations: int) -> tuple[float, list[str], list[str]]:
    """Append `annotations` annotations; return the seconds, and tokens for the clients."""
    rng = np.random.default_rng(0)
    n_items = annotations // LABELS_PER_ITEM
    truth = rng.integers(0, len(CLASSES), n_items)
    service = Service(open_store(where), fits=False)
    service.create_project("load", per_item=50)
    began = time.perf_counter()
    for start in range(0, annotations, CHUNK):
        item = np.arange(start, min(start + CHUNK, annotations)) // LABELS_PER_ITEM
        who = rng.integers(0, ANNOTATORS, item.size)
        label = np.where(rng.random(item.size) < RIGHT, truth[item], rng.integers(0, len(CLASSES), item.size))
        rows = zip(item.tolist(), who.tolist(), label.tolist(), strict=True)
        events = [
            Event("annotation", str(start + at), f"item {i:07d}", f"person {j:03d}", CLASSES[k])
            for at, (i, j, k) in enumerate(rows)
        ]
        service.append("load", events)
    seconds = time.perf_counter() - began
    tokens = TokenStore(service.store)
    found = [tokens.add("admin") for _ in range(200)]
    service.close()
    return seconds, found, [f"person {at:03d}" for at in range(ANNOTATORS)]


@contextmanager
def postgres() -> Iterator[str]:
    """Start a server of our own in a temporary folder; return its address."""
    folder = Path(tempfile.mkdtemp(prefix="dissensus-postgres-"))
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data, port = folder / "data", 54_329
    run = [*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "dissensus"]
    subprocess.run(run, check=True, capture_output=True)
    options = f"-p {port} -k {folder} -c listen_addresses=''"
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
    subprocess.run([*control, "-o", options, "start"], check=True, capture_output=True)
    try:
        yield f"postgresql://dissensus@/postgres?host={folder}&port={port}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


class LabelStudioClient:
    """One keep-alive connection that sends a request and waits for its answer."""

    def __init__(self, port: int, token: str):
        self.port, self.head = port, f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"

    async def connect(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def send_request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of the response."""
        data = b"" if body is None else json.dumps(body).encode()
        length = f"Content-Length: {len(data)}\r\n" if body is not None else ""
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{self.head}{length}\r\n".encode() + data)
        head = await self.reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        found = json.loads(await self.reader.readexactly(int(head[at : head.index(b"\r\n", at)])))
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{method} {path}: {found}")
        return found


async def label(
    client: LabelStudioClient, person: str, rng: Any, until: float, options: argparse.Namespace, found: Any
) -> None:
    """Label as long as there is time."""
    await client.connect()
    items = options.annotations // LABELS_PER_ITEM
    while time.perf_counter() < until:
        began = time.perf_counter()
        asked = await client.send_request("GET", f"/projects/load/next?annotator={quote(person)}")
        got_next = time.perf_counter()
        # This client also labels where other annotators would be asked first.
        item = f"item {rng.integers(items):07d}" if asked["stop"] else asked["items"][0]["item"]
        given = CLASSES[rng.integers(len(CLASSES))]
        await client.send_request(
            "POST", "/projects/load/annotations", {"item": item, "annotator": person, "label": given}
        )
        posted = time.perf_counter()
        state = await client.send_request("GET", f"/projects/load/items/{quote(item)}")
        read = time.perf_counter()
        if not options.floor and {"annotator": person, "label": given} not in [
            {key: one[key] for key in ("annotator", "label")} for one in state["annotations"]
        ]:
            raise RuntimeError(f"the label of {person} is not in {item}")
        found.append((began, got_next - began, posted - got_next, read - posted))
        if options.pause:
            await asyncio.sleep(rng.exponential(options.pause))


def cost(pid: int) -> tuple[float, float]:
    """Seconds of processor time and most memory (MB) of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) / 1e3


@contextmanager
def serving(command: list[str], port: int, token: str) -> Iterator[tuple[Any, float]]:
    """Start the service; return its process and the seconds until its first response."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while True:
            try:
                asyncio.run(_ask_once(port, token))
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError("the service stopped") from None
                time.sleep(0.05)
        yield process, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


async def _ask_once(port: int, token: str) -> None:
    client = LabelStudioClient(port, token)
    await client.connect()
    await client.send_request("GET", "/projects/load/next?annotator=somebody")


async def drive(port: int, tokens: list[str], people: list[str], options: argparse.Namespace) -> list[Any]:
    responses: list[Any] = []
    until = time.perf_counter() + options.seconds
    rngs = np.random.default_rng(1).spawn(options.clients)
    clients = [LabelStudioClient(port, tokens[at % len(tokens)]) for at in range(options.clients)]
    work = zip(clients, people, rngs, strict=False)
    await asyncio.gather(*(label(c, p, rng, until, options, responses) for c, p, rng in work))
    return responses


def measure(where: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fill the store, serve it, and ask."""
    seconds, tokens, people = fill(where, options.annotations)
    port = 18_765
    command = [sys.executable, "-m", "dissensus", "serve", "--store", where, "--port", str(port), "--quiet"]
    if options.floor:
        folder = Path(tempfile.mkdtemp())
        (folder / "floor.py").write_text(FLOOR)
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(folder), "floor:app", "--port", str(port)]
        command += ["--no-access-log", "--log-level", "warning"]
    with serving(command, port, tokens[0]) as (process, start):
        before, own = cost(process.pid), time.process_time()
        began = time.perf_counter()
        found = asyncio.run(drive(port, tokens, people, options))
        wall = time.perf_counter() - began
        after = cost(process.pid)
        own = time.process_time() - own
    times = np.array([row for row in found if row[0] > began + WARM_SECONDS])[:, 1:] * 1e3
    result: dict[str, Any] = {
        "store": "floor" if options.floor else options.store, "annotations": options.annotations,
        "clients": options.clients, "pause": options.pause, "seconds": wall,
        "filled_per_second": options.annotations / seconds, "start_seconds": start, "memory_mb": after[1],
        "labels": len(found), "requests_per_second": 3 * len(found) / wall,
        "service_cores": (after[0] - before[0]) / wall, "client_cores": own / wall,
        "service_ms_per_request": 1e3 * (after[0] - before[0]) / (3 * len(found)), "start_processor_seconds": before[0],
    }  # fmt: skip
    for name, column in zip(("next", "post", "item"), times.T, strict=True):
        result |= {f"{name}_p{q}_ms": float(np.percentile(column, q)) for q in (50, 99)}
        result[f"{name}_max_ms"] = float(column.max())
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--annotations", type=int, default=1_000_000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of a client between two labels, on average")
    parser.add_argument("--floor", action="store_true", help="an application that does nothing")
    options = parser.parse_args()
    if options.store == "postgres":
        with postgres() as where:
            found = measure(where, options)
    else:
        with tempfile.TemporaryDirectory(prefix="dissensus-load-") as folder:
            found = measure(str(Path(folder, "load.db")), options)
    for key, value in found.items():
        print(f"{key:24} {value:,.2f}" if isinstance(value, float) else f"{key:24} {value}")


if __name__ == "__main__":
    main()
