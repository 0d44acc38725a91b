"""Every registered encoder and objective keeps its contract; a broken one is found."""

import numpy as np
import pytest
import torch

from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders import encoders
from dissensus.learning.encoders.identity import Identity
from dissensus.learning.objectives import objectives
from dissensus.learning.objectives.soft import Soft
from dissensus.testing.encoders import check_encoder
from dissensus.testing.objectives import check_objective

RNG = np.random.default_rng(0)
TEXTS = ["a cat", "the dog barks", "", "a bird sings", "the cat and the dog", "birds"]
INPUTS = {
    "features, items × columns": RNG.normal(size=(6, 3)).astype(np.float32),
    "names of items": ["a", "b", "c", "d"],
    "(tokens, position) pairs": [("saw cats", 1), ("saw dogs", 1), ("the bird", 0), ("one", 0)],
    "(word, stem) pairs": [("walking", "walk"), ("barked", "bark"), ("", "x"), ("ab", "b")],
    "texts": TEXTS,
    "texts, or pairs of a text and a target": TEXTS,
    "images, items × height × width (× channels)": RNG.integers(0, 256, (5, 8, 8, 3), dtype=np.uint8),
}
KEYWORDS = {"transformer": {"tune": False, "cache": False}, "tagger": {"hidden": 8, "dimensions": 8}}
KEYWORDS |= {"wide-resnet": {"depth": 10, "widen": 1}, "stemmer": {"characters": 8, "channels": (4, 6), "hidden": 8}}


@pytest.mark.parametrize("name", list(encoders))
def test_every_encoder_keeps_the_contract(name):
    encoder = encoders[name](**KEYWORDS.get(name, {}))
    check_encoder(encoder, INPUTS[encoder.input_kind])


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", list(objectives))
def test_every_objective_keeps_the_contract(name):
    check_objective(objectives[name]())


class Ranked(Identity):
    """Vectors depend on the other rows."""

    def prepare(self, X):
        return BatchColumns(x=torch.as_tensor(np.argsort(np.asarray(X), axis=0).astype(np.float32)))


class Forgetful(Identity):
    """What `fit` learnt is not saved."""

    def fit(self, X):
        self._shift = float(np.asarray(X).max())
        return super().fit(X)

    def prepare(self, X):
        return super().prepare(np.asarray(X) - getattr(self, "_shift", 0))


class Mean(Soft):
    """The loss is a mean."""

    def loss(self, head, z, targets):
        return super().loss(head, z, targets) / len(z)


class Blind(Soft):
    """The loss does not depend on the encoder."""

    def loss(self, head, z, targets):
        return super().loss(head, z.detach() + 0 * z, targets)


@pytest.mark.parametrize("broken", [Ranked, Forgetful])
def test_a_broken_encoder_is_found(broken, monkeypatch):
    monkeypatch.setattr(encoders, "_entries", dict(encoders._entries))
    encoders.register("broken", summary="a broken one")(broken)
    with pytest.raises(AssertionError):
        check_encoder(broken(), INPUTS[broken.input_kind])


@pytest.mark.parametrize("broken", [Mean, Blind])
def test_a_broken_objective_is_found(broken, monkeypatch):
    monkeypatch.setattr(objectives, "_entries", dict(objectives._entries))
    objectives.register("broken", summary="a broken one")(broken)
    with pytest.raises(AssertionError):
        check_objective(broken())
