"""Pack predictions into a line of a store, and test them as Fornaciari et al. 2021 do, with all seeds pooled.

`python -m reproductions.pooled` prints macro-F1 of stem models trained on silver labels, as the released program
measures it: against the majority, without tied pairs, with the predictions of all seeds together.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation import macro_f1

SAMPLE_SHARE = 0.33  # Share of all predictions in a bootstrap sample.


def pack(codes: IntArray, dtype: Any = np.uint8) -> str:
    """Pack small integers into a text; 14,439 predicted tags, mostly right, take about 2 kB."""
    return base64.b85encode(zlib.compress(codes.astype(dtype).tobytes(), 9)).decode()


def unpack(text: str, dtype: Any = np.uint8) -> IntArray:
    """Unpack the integers."""
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype).astype(np.int64)


def bootstrap_p_values(
    truth: IntArray, stl: IntArray, mtl: IntArray, K: int, samples: int, seed: int = 0
) -> tuple[float, float]:
    """Return p-values of accuracy and macro-F1, as in the released code (after Berg-Kirkpatrick et al. 2012).

    The p-value is the share of samples (a third of all predictions, drawn with replacement) in which MTL's lead over
    STL is more than twice its lead in all predictions; 1 without a lead. A sample is a multinomial draw of the counts
    of (truth, STL, MTL).
    """
    kinds, count = np.unique(np.stack([truth, stl, mtl]), axis=1, return_counts=True)
    size = int(SAMPLE_SHARE * truth.size)
    drawn = np.random.default_rng(seed).multinomial(size, count / truth.size, size=samples)  # (samples, kinds)
    of_all, of_drawn = score_leads(kinds, count[None], K), score_leads(kinds, drawn, K)
    p = np.where(of_all[:, 0] > 0, (of_drawn > 2 * of_all).mean(axis=1), 1.0)
    return float(p[0]), float(p[1])


def score_leads(kinds: IntArray, count: IntArray, K: int) -> FloatArray:
    """Return accuracy and macro-F1 of MTL minus STL (2, samples), from `kinds` (3, n) and counts (samples, n)."""
    scores = []
    truth = np.eye(K)[kinds[0]]  # (n, K)
    for given in (np.eye(K)[kinds[1]], np.eye(K)[kinds[2]]):
        hit = count @ (truth * given)  # (samples, K)
        total = count @ (truth + given)
        f1 = 2 * hit / np.maximum(total, 1)
        scores.append([hit.sum(axis=1) / count.sum(axis=1), f1.sum(axis=1) / (total > 0).sum(axis=1)])
    leads: FloatArray = np.asarray(scores[1]) - np.asarray(scores[0])
    return leads


def pooled_f1(truth: IntArray, predicted: IntArray) -> tuple[float, float]:
    """Return macro-F1 of all seeds' predictions (S, I) together, and its standard error (jackknife over seeds)."""
    S = len(predicted)

    def score(some: IntArray) -> float:
        return float(macro_f1(np.tile(truth, len(some)), some.ravel()))

    without = np.array([score(np.delete(predicted, seed, axis=0)) for seed in range(S)])
    return score(predicted), float(np.sqrt((S - 1) * without.var()))


def main() -> None:
    """Print a line for every row that was trained on silver labels."""
    from scipy.stats import t

    from reproductions.fornaciari2021 import folds
    from reproductions.record import ROOT, read_store

    parts = list(folds({"task": "stemming", "split": "folds"}, 0))
    truth, votes = np.concatenate([part.truth for part in parts]), np.concatenate([part.votes for part in parts])
    clear, rows = votes[:, 0] != votes[:, 1], dict[str, list[IntArray]]()
    for line in read_store(ROOT / "reproductions" / "results" / "fornaciari2021.jsonl").values():
        if (line["table"], line["data"]) == ("stems", "silver"):
            rows.setdefault(line["condition"], []).append((unpack(line["kept"]["off"]) + truth) % 2)
    for name, predicted in rows.items():
        value, error = pooled_f1(votes[clear].argmax(axis=1), np.array(predicted)[:, clear])
        wide = float(t.ppf(0.975, len(predicted) - 1)) * error
        print(f"{name}: {100 * value:.1f} ({100 * (value - wide):.1f} to {100 * (value + wide):.1f})")


if __name__ == "__main__":
    main()
