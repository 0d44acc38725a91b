"""`digits-crowd`: scikit-learn's handwritten digits, labelled by simulated annotators with known parameters.

The difficulty of an image is its distance to images of the same digit, divided by its distance to images of other
digits. Its decoy is the digit of the nearest image of another class.
"""

from __future__ import annotations

import base64
import dataclasses
import struct
import zlib
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.common.arrays import make_read_only
from dissensus.common.types import FloatArray, IntArray
from dissensus.table.datasets.dataset import Dataset
from dissensus.table.simulate import MAX_DIFFICULTY, annotate, make_crowd

DATASET_NAME = "digits-crowd"
DATASET_DESCRIPTION = """Handwritten digits with simulated annotators
Which digit does the image show? 1,797 real images of 8 × 8 pixels from scikit-learn; about five labels each by 42 \
simulated annotators: experts, ordinary people, per-class specialists, spammers, an adversary and a clique who copy."""

ANNOTATOR_COUNTS = {
    "expert": 5,
    "ordinary": 20,
    "specialist": 6,
    "uniform-spammer": 3,
    "constant-spammer": 2,
    "adversary": 1,
    "clique": 5,
}
N_CASUAL_ANNOTATORS = 6  # number of ordinary annotators with too few labels to estimate their accuracy
MEAN_LABELS_CASUAL = 6.5  # mean number of labels of a casual annotator
N_TEST_IMAGES = 360  # number of test images, which are the last ones


def make_digits_crowd(seed: int = 0) -> Dataset:
    """Return the data set; the crowd and the labels depend on the seed, but not images, difficulty and splits."""
    pixels, truth = _load_digits()
    difficulty, decoy = _compute_difficulty()
    n = truth.size
    items = np.array([f"d{i:04d}" for i in range(n)], object)
    classes = np.array([str(k) for k in range(10)], object)

    crowd = make_crowd(sum(ANNOTATOR_COUNTS.values()), 10, kinds=ANNOTATOR_COUNTS, skew=0.6, seed=seed)
    names = np.array([f"a{a:02d}" for a in range(crowd.kind.size)], object)
    activity = np.clip(crowd.activity, 0.3, 2.5)
    for kinds, low, high in ((("uniform-spammer", "constant-spammer", "adversary"), 0.9, 1.5), (("clique",), 1.3, 1.7)):
        here = np.isin(crowd.kind, kinds)
        activity[here] = np.clip(activity[here], low, high)  # They need enough labels to be detected.
    casual = np.flatnonzero(crowd.kind == "ordinary")[:N_CASUAL_ANNOTATORS]
    activity[casual] = 0
    activity[casual] = activity.sum() * MEAN_LABELS_CASUAL / (5 * n)
    crowd = dataclasses.replace(crowd, activity=activity)
    sim = annotate(
        crowd, truth, difficulty=difficulty, decoy=decoy, redundancy=(4, 6),
        items=items, annotators=names, classes=classes, seed=seed,
    )  # fmt: skip

    right = np.einsum("akk,k->a", sim.confusion, np.bincount(truth, minlength=10) / n)
    split = np.where(np.arange(n) < n - N_TEST_IMAGES, "train", "test")
    about_items = {"item": items, "image": _encode_pictures(), "split": split, "difficulty": difficulty}
    about_items["looks_like"] = classes[decoy]
    copies = pa.array([names[leader] if leader >= 0 else None for leader in crowd.leader], pa.string())
    features = pixels.reshape(n, 64)
    return Dataset(
        DATASET_NAME,
        DATASET_DESCRIPTION,
        sim.annotations,
        gold=truth,
        items=pa.table(about_items),
        annotators=pa.table({"annotator": names, "kind": crowd.kind, "accuracy": right, "copies": copies}),
        stored={"features": (items, lambda: features), "images": (items, lambda: pixels)},
    )


@cache
def _load_digits() -> tuple[Any, IntArray]:
    """Return the pixels (1797, 8, 8), from 0 to 16, and the digits (1797,) of the images."""
    from sklearn.datasets import load_digits  # This import is slow and rarely needed.

    pixels, truth = load_digits(return_X_y=True)
    return make_read_only(pixels.reshape(-1, 8, 8).astype(np.uint8)), make_read_only(truth.astype(np.int32))


@cache
def _encode_pictures() -> list[str]:
    """Return the 1797 images as data URLs of PNGs, with dark digits on a light background."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0))  # 8-bit greyscale (PNG specification, 11.2.2)
    urls = []
    for pixels in (255 - np.minimum(_load_digits()[0].astype(np.int64) * 16, 255)).astype(np.uint8):
        rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter type 0 (unfiltered)
        chunks = header + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
        urls.append("data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode())
    return urls


@cache
def _compute_difficulty() -> tuple[FloatArray, IntArray]:
    """Return the difficulty (1797,) and the decoy (1797,) of each image."""
    pixels, truth = _load_digits()
    x = pixels.reshape(len(pixels), -1).astype(np.float32)
    square = (x * x).sum(axis=1)
    distance = square[:, None] + square - 2 * (x @ x.T)  # Whole numbers below 2^24 are exact in any order of summation.
    np.fill_diagonal(distance, np.inf)
    same = truth[:, None] == truth
    own = np.partition(np.where(same, distance, np.inf), 2, axis=1)[
        :, 2
    ]  # distance to the third nearest image of its class
    other = np.where(same, np.inf, distance)
    ratio = np.sqrt(own / other.min(axis=1))
    difficulty = MAX_DIFFICULTY * np.clip((ratio - 0.45) / 0.65, 0, 1) ** 2
    return make_read_only(difficulty), make_read_only(truth[other.argmin(axis=1)])
