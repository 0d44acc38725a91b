"""The stemmer against its convolutions as loops; words of all lengths."""

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus.exceptions import DataError
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders.stemmer import Stemmer
from dissensus.learning.exceptions import WrongInputRow

X = [("forefathers", "forefather"), ("a", "a"), ("", "in state"), ("goalkeeper", ""), ("Box", "box"), ("ab", "b")]
SMALL = {"characters": 5, "channels": (3, 4), "windows": (2, 3, 5)}


def prepared(given=X, **keywords):
    torch.manual_seed(3)
    encoder = Stemmer(**{**SMALL, **keywords}).fit(X)
    return encoder, encoder.module().eval(), encoder.prepare(given)


def convolve(x, convolution, window):
    """A convolution with a relu at every place of x, zeros before and after."""
    W, b = convolution.weight.detach().numpy(), convolution.bias.detach().numpy()
    out = np.zeros((len(x), len(b)))
    for t in range(len(x)):
        for channel in range(len(b)):
            total = b[channel]
            for step in range(window):
                s = t + step - (window - 1) // 2
                if 0 <= s < len(x):
                    total += W[channel, :, step] @ x[s]
            out[t, channel] = max(total, 0.0)
    return out


def test_the_literal_loop():
    encoder, module, columns = prepared()
    given = []
    for block in module.blocks:
        block.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].detach().numpy()))
    assert module(**columns.take(torch.arange(len(X)))).shape == (len(X), 24)
    for side, z in enumerate(given):
        for row, pair in enumerate(X):
            letters = [encoder.characters_.index(letter) + 2 for letter in pair[side].lower()]
            x = module.characters.weight.detach().numpy()[letters]
            expected = []
            for n, window in enumerate(SMALL["windows"]):
                a = convolve(x, module.convolutions[side].first[n], window)
                pooled = np.array([a[t : t + 2].max(axis=0) for t in range(len(a))]).reshape(len(a), 3)
                b = convolve(pooled, module.convolutions[side].second[n], window)
                expected.append(b.max(axis=0) if len(b) else np.zeros(4))
            np.testing.assert_allclose(z[row], np.concatenate(expected), atol=1e-5)


def test_padding_changes_nothing():
    _, module, columns = prepared()
    together = module(**columns.take(torch.arange(len(X))))
    for i in range(len(X)):
        torch.testing.assert_close(module(**columns.take(torch.tensor([i])))[0], together[i], atol=1e-6, rtol=1e-5)


def test_upper_and_lower_case_are_one():
    _, module, columns = prepared([("box", "box"), ("BOX", "b0x")])
    z = module(**columns.take(torch.arange(2)))
    assert torch.equal(z[0, :12], z[1, :12])
    assert not torch.equal(z[0, 12:], z[1, 12:])


@pytest.mark.parametrize(("hidden", "width"), [(None, 24), (7, 7)])
def test_without_a_hidden_layer_word_and_stem_only_add_up(hidden, width):
    encoder, module, columns = prepared([("ab", "b"), ("ab", "box"), ("box", "b"), ("box", "box")], hidden=hidden)
    torch.manual_seed(0)
    head = torch.nn.Sequential(encoder.branch(), torch.nn.Linear(encoder.width, 1))
    assert encoder.width == width
    s = head(module(**columns.take(torch.arange(4))))[:, 0]
    assert torch.allclose(s[0] + s[3], s[1] + s[2], atol=1e-6) == (hidden is None)


def test_what_is_no_pair_of_strings_is_one_sentence():
    with pytest.raises(WrongInputRow) as caught:
        Stemmer().fit([("a", "b"), ("c", None)])
    assert caught.value.row == 1
    with pytest.raises(DataError):
        Stemmer().fit(["ab"])


def test_it_learns_and_is_saved(tmp_path):
    table, _, truth = blobs(60)
    endings = ["", "ing", "ed"]
    words = ["walk", "talk", "bark", "mark"]
    given = [(f"{words[i % 4]}{endings[c]}", words[i % 4]) for i, c in enumerate(truth)]
    model = CrowdClassifier(encoder=Stemmer(**SMALL, hidden=8), objective="soft-task", epochs=30, batch_size=59,
                            learning_rate=0.01, device="cpu").fit(table, given)  # fmt: skip
    assert model.score(given, truth) > 0.9
    model.save(tmp_path)
    new = [("", ""), ("x", "é"), ("parked", "park")]
    again = CrowdClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))


def test_options_are_those_of_the_released_code():
    start = {"f": [1.0, 2.0, 3.0, 4.0, 5.0]}
    _, module, columns = prepared(stacked=False, padded=True, scaled=True, wide=7, start=start)
    batch = columns.take(torch.arange(len(X)))
    assert len(module.convolutions[0].first) == 0
    assert module.blocks[0][0].wide.out_features == 7
    assert module.characters(batch["word"])[0, 0].tolist() == start["f"]  # of forefathers
    read = []
    for block in module.blocks:
        block[0].register_forward_pre_hook(lambda _, given: read.append(given[0]))
    with torch.no_grad():
        module(**batch)
        x = module.characters(batch["word"])
        x = torch.where((batch["word"] != 0)[:, :, None], x, module.padding)
        assert x.shape[1] == len("forefathers")
        conv = module.convolutions[0](x, torch.ones(x.shape[:2], dtype=torch.bool))
    place = torch.tensor([0.0, 1.0] * 6)
    torch.testing.assert_close(read[0], conv * 12**0.5 + place)
