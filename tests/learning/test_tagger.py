"""The tagger against LSTM equations as loops; sentences and words of all lengths."""

import numpy as np
import pandas as pd
import pytest
import torch

from crowds import blobs
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import Tagger
from dissensus.learning.exceptions import PositionOutOfRange, WrongInputRow
from faults import raised

X = [
    ("I saw a very long cat", 1), (["I"], 0), ("I saw a very long cat", 5), (("cats", "", "run"), 1),
    ("a dog", np.int64(1)), ("I saw a very long cat", "0"), ("extraordinarily so", 0.0),
    (("cats", "", "run"), 0),
]  # fmt: skip
SMALL = {"dimensions": 5, "characters": 4, "hidden": 3, "heads": 2}


def prepared(given=X, **keywords):
    torch.manual_seed(2)
    encoder = Tagger(**{**SMALL, **keywords}).fit(X)
    return encoder, encoder.module().eval(), encoder.prepare(given)


def lstm(x, module, suffix):
    """All states of one direction, by torch's equations: gates in the order input, forget, cell, output."""
    W, U, b, d = (
        getattr(module, f"{name}_l0{suffix}").detach().numpy()
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    H = U.shape[1]
    h, c, states = np.zeros(H), np.zeros(H), []
    for step in x:
        i, f, g, o = np.split(W @ step + b + U @ h + d, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        states.append(h)
    return states


def test_the_literal_loop():
    encoder, module, columns = prepared()
    found = {}
    module.blocks.register_forward_hook(lambda _, given, __: found.update(z=given[0].detach().numpy()))
    out = module(**columns.take(torch.arange(len(X))))
    assert out.shape == (8, 12)
    assert encoder.branch()(out).shape == (8, encoder.width) == (8, 6)
    for row, (given, position) in enumerate(X):
        sentence = given.split() if isinstance(given, str) else list(given)
        at = int(position)
        x = [module.vectors.tuned[1 + encoder.words_.index(word)].detach().numpy() for word in sentence]
        u = np.concatenate([
            lstm(x, module.context, "")[at], lstm(x[::-1], module.context, "_reverse")[len(x) - 1 - at],
        ])  # fmt: skip
        letters = [module.characters.weight[2 + encoder.characters_.index(c)].detach().numpy() for c in sentence[at]]
        letters = letters or [np.zeros(4)]
        v = [lstm(letters, module.spelling, "")[-1], lstm(letters[::-1], module.spelling, "_reverse")[-1]]
        np.testing.assert_allclose(found["z"][row], np.concatenate([u, *v]), atol=1e-5)


def test_padding_and_company_change_nothing():
    _, module, columns = prepared()
    together = module(**columns.take(torch.arange(len(X))))
    for i in range(len(X)):
        torch.testing.assert_close(module(**columns.take(torch.tensor([i])))[0], together[i], atol=1e-6, rtol=1e-5)


def test_a_sentence_is_read_once_for_all_its_targets():
    _, module, columns = prepared()
    read = []
    module.vectors.register_forward_hook(lambda _, given, __: read.append(len(given[0])))
    module(**columns.take(torch.arange(len(X))))
    assert read == [5]  # of eight rows


def test_unknown_words_differ_by_their_characters_only():
    _, module, columns = prepared([("saw cots", 1), ("saw tocs", 1), ("saw zzzz", 1), ("saw qqqq", 1)])
    z = module(**columns.take(torch.arange(4)))
    assert not torch.equal(z[0], z[1])
    assert torch.equal(z[2], z[3])  # letters that were never there are alike too


def test_long_words_are_cut():
    _, _, columns = prepared([("extraordinarily", 0), ("extraordinary", 0)], max_characters=12)
    batch = columns.take(torch.arange(2))
    assert batch["characters"].shape == (2, 12)
    assert torch.equal(batch["characters"][0], batch["characters"][1])
    assert batch["word"].tolist() == [0, 0]


@pytest.mark.parametrize("position", [2, -1, 0.5, None, "x", float("nan")])
def test_a_position_outside_is_one_sentence(position):
    with raised(PositionOutOfRange, row=1, n_tokens=2):
        Tagger().fit([("a b", 0), ("a b", position)])


def test_two_columns_of_a_frame():
    frame = pd.DataFrame({"text": ["a b", "c"], "position": [1, 0]})
    columns = Tagger(**SMALL).fit(frame).prepare(frame)
    assert columns.take(torch.arange(2))["position"].tolist() == [1, 0]
    with raised(WrongInputRow, row=0, value="'a b'"):
        Tagger().fit(["a b"])


def test_it_learns_and_is_saved(tmp_path):
    table, _, truth = blobs(60)
    words = [["red", "reds"], ["blue", "blues"], ["green", "greens"]]
    given = [(f"it is {words[c][i % 2]} now"[: None if i % 3 else -4], 2) for i, c in enumerate(truth)]
    model = CrowdClassifier(encoder=Tagger(**{**SMALL, "hidden": 8}), objective="soft-task", epochs=25, batch_size=20,
                            learning_rate=0.01, device="cpu").fit(table, given)  # fmt: skip
    assert model.score(given, truth) > 0.9
    model.save(tmp_path)
    new = [("a crimson rose", 1), ("red", 0), ("blues", 0)]
    again = CrowdClassifier.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    # a batch of one item gives what it gives in company
    np.testing.assert_allclose(model.predict_proba(new[1:2])[0], model.predict_proba(new)[1], atol=1e-6)
