"""The released stemmer: its convolutions against torch's own, and what its switches change."""

import numpy as np
import pytest
import torch

from reproductions.released_stemmer import WIDTH, WINDOWS, ReleasedStemmer, predict_released, windows_of

WORDS = ["goalkeeper", "a", "boxes", "forefathers"]
LETTER_CODES = {letter: code for code, letter in enumerate(sorted(set("".join(WORDS))), 1)}


def test_products_of_windows_are_convolutions():
    torch.manual_seed(0)
    model, longest = ReleasedStemmer(len(LETTER_CODES) + 1, ()).eval(), max(map(len, WORDS))
    read = []
    model.blocks[0].register_forward_pre_hook(lambda _, given: read.append(given[0]))
    windows = [window.float() for window in windows_of(WORDS, LETTER_CODES, longest)]
    with torch.no_grad():
        model([windows, windows])
        for row, word in enumerate(WORDS):
            codes = [LETTER_CODES[letter] for letter in word] + [0] * (longest - len(word))
            x = model.characters[codes].T  # (300, L)
            z = torch.cat([conv(x).relu().amax(dim=1) for conv in model.filters[0]])
            expected = z * WIDTH**0.5 + torch.arange(WIDTH) % 2
            torch.testing.assert_close(read[0][row], expected, atol=2e-4, rtol=1e-4)
    assert [window.shape[1] for window in windows] == [longest - size + 1 for size in WINDOWS]


@pytest.mark.parametrize("ours", [(), ("two logits", "one dropout", "drawn order", "nats", "first epoch")])
def test_it_learns_what_can_be_learnt(ours):
    rng = np.random.default_rng(0)
    pairs = [("".join(rng.choice(list("abcd"), 6)), "stem") for _ in range(60)]
    gold, rows = np.array([int("ab" in word) for word, _ in pairs]), np.arange(60)
    told = {"seed": 0, "divergence": "inverse-kl", "ours": ours, "epochs": 8}
    found = predict_released(pairs, 4 * np.eye(2)[gold], gold, rows, rows, pairs, **told)
    assert (found == gold).mean() > 0.9
