"""Kim's network against his equations as loops, and texts of all lengths."""

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus.features.exceptions import NotAText
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import TextCNN
from faults import raised

TEXTS = ["the cat sat on the mat today", "", "no", "a dog, a cat", "don't stop me now I'm having such a good time"]


def prepared(texts=TEXTS, **keywords):
    torch.manual_seed(1)
    encoder = TextCNN(dimensions=6, channels=4, **keywords).fit(TEXTS)
    return encoder, encoder.module().eval(), encoder.prepare(texts)


def test_the_literal_loop():
    encoder, module, columns = prepared(windows=(2, 3))
    words = columns.columns["words"]
    z = module(**columns.take(torch.arange(5))).detach().numpy()
    assert z.shape == (5, encoder.width) == (5, 8)
    for i in range(5):
        codes = words.columns["code"][words.ptr[i] : words.ptr[i + 1]].tolist()
        codes += [0] * (3 - len(codes))  # filled up to the longest window
        x = [np.zeros(6) if code == 0 else module.vectors.tuned[code - 1].detach().numpy() for code in codes]
        for h, convolution in zip((2, 3), module.convolutions, strict=True):
            W, b = convolution.weight.detach().numpy(), convolution.bias.detach().numpy()
            for channel in range(4):
                c = []
                for t in range(len(x) - h + 1):
                    total = b[channel]
                    for step in range(h):
                        total += W[channel, :, step] @ x[t + step]
                    c.append(max(total, 0.0))  # Eq. 2
                assert z[i, (h - 2) * 4 + channel] == pytest.approx(max(c), abs=1e-5)


def test_padding_changes_nothing():
    _, module, columns = prepared()
    together = module(**columns.take(torch.arange(5)))
    for i in range(5):
        torch.testing.assert_close(module(**columns.take(torch.tensor([i])))[0], together[i])


def test_words_are_lower_cased_and_signs_stand_alone():
    encoder = TextCNN(max_words=4).fit(["Don't STOP, me now", "naïve_x 3.5"])
    assert encoder.words_ == [",", ".", "3", "5", "don't", "me", "naïve_x", "stop"]  # `now` is beyond max_words
    with raised(NotAText, row=1, value="None"):
        encoder.prepare(["a", None])


def test_unknown_words_are_alike():
    _, module, columns = prepared(["xyzzy the", "plugh the", "cat the"])
    z = module(**columns.take(torch.arange(3)))
    assert torch.equal(z[0], z[1])
    assert not torch.equal(z[0], z[2])


def test_it_learns_and_is_saved(tmp_path):
    table, _, truth = blobs(60)
    rng = np.random.default_rng(0)
    words = [["red", "crimson"], ["blue", "azure"], ["green", "olive"]]
    X = ["" if i == 7 else f"it is {rng.choice(words[c])} , {rng.choice(['now', 'then'])}" for i, c in enumerate(truth)]
    encoder = TextCNN(dimensions=10, channels=8)
    model = CrowdClassifier(encoder=encoder, objective="soft", epochs=15, batch_size=59, learning_rate=0.01,
                            device="cpu").fit(table, X)  # fmt: skip
    assert model.score(X, truth) > 0.9
    model.save(tmp_path)
    new = ["crimson", "", "never seen", "azure !"]
    again = CrowdClassifier.load(tmp_path, device="cpu")
    assert np.array_equal(again.predict_proba(new), model.predict_proba(new))
    assert again.encoder_.words_ == model.encoder_.words_
