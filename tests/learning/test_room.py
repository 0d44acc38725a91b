"""LDL-NM with room: the same numbers as without, also where it learnt and where it was saved."""

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus.exceptions import BadParameter
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import Identity
from dissensus.learning.exceptions import LayerRoomTooSmall
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from learning.tables import fitted

TABLE, X, _ = blobs(60, redundancy=6)


def both_forms(features=None, **keywords):
    """A head without and a head with room, of the same weights."""
    found = []
    for objective in (LDLNMObjective(**keywords), LDLNMObjective(**keywords, room=(6, 8))):
        objective.annotator_features_ = features
        found.append(fitted(objective))
    return found


def test_the_layers_of_the_sizes_are_in_the_corner_and_the_rest_is_nothing():
    (_, plain, _, _), (_, head, _, _) = both_forms(item_size=4, annotator_size=5)
    for name, weight in plain.state_dict().items():
        roomy = head.state_dict()[name]
        corner = tuple(slice(n) for n in weight.shape)
        torch.testing.assert_close(roomy[corner], weight, atol=0, rtol=0)
        assert roomy.abs().sum() == pytest.approx(float(weight.abs().sum()), rel=1e-6), name
    assert head.table.weight.row_sparse


@pytest.mark.parametrize("described", [False, True])
def test_loss_and_answers_are_those_without_room(described):
    features = np.random.default_rng(0).normal(size=(7, 2)) if described else None
    found = []
    for objective, head, z, targets in both_forms(features, item_size=3, annotator_size=2):
        head.eval()
        codes, row = torch.tensor([2, -1, 0]), torch.tensor([4, 4, 0])
        found.append(
            [
                objective.loss(head, z, targets),
                objective.logits(head, z),
                objective.pair_label_proba(head, z, row, codes),
            ]
        )
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def small(room=None, **more):
    sizes = {"item_size": 3, "annotator_size": 4, "dropout": 0.0}
    objective = LDLNMObjective(**sizes, room=room)
    return CrowdClassifier(encoder=Identity(), objective=objective, epochs=4, batch_size=17, device="cpu",
                           learning_rate=0.01, **more)  # fmt: skip


def test_room_changes_nothing():
    alone, roomy = small().fit(TABLE, X), small(room=(6, 5)).fit(TABLE, X)
    np.testing.assert_allclose(roomy.proba_, alone.proba_, atol=2e-5)
    np.testing.assert_allclose(roomy.trace_, alone.trace_, atol=2e-5)


def test_a_saved_model_says_the_same(tmp_path):
    model = small(room=(4, 6)).fit(TABLE, X)
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    who = [*TABLE.annotators[:2], "nobody"]
    np.testing.assert_array_equal(again.predict_annotator_proba(X[:3], who), model.predict_annotator_proba(X[:3], who))


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"room": (3, 20)}, LayerRoomTooSmall),
        ({"room": 20}, BadParameter),
        ({"room": (20, 20), "pair_size": 3}, LayerRoomTooSmall),
    ],
)
def test_wrong_keywords_are_one_clear_error(keywords, error):
    with pytest.raises(error):
        LDLNMObjective(**keywords).fit(TABLE, None, 0)
