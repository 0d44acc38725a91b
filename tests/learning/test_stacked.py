"""Many trainings as one: each ends where it would have ended alone."""

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import MLP, Identity, ItemEmbedding
from dissensus.learning.exceptions import (
    ArgumentLengthsDiffer,
    KeywordNotStackable,
    StackedModelsDiffer,
    StackedTablesDiffer,
    TrainingsNotStackable,
)
from dissensus.learning.lia_ml import LIAML
from dissensus.learning.objectives import CrowdLayerObjective, Hard, LIAObjective
from dissensus.learning.objectives.ldl_nm import LDLNMObjective
from dissensus.learning.rows import RowAdam
from dissensus.learning.stacked import Stack, StackedRowAdam, fit_together, stack_trainings

NEAR = 2e-5
SEEDS = 3


TABLE, X, TRUTH = blobs(60, redundancy=6)


def models(objective, encoder, **more):
    return [
        CrowdClassifier(
            encoder=encoder, objective=objective, optimizer="amsgrad", learning_rate=0.01, head_learning_rate=0.02,
            epochs=8, batch_size=17, device="cpu", seed=seed, **more,
        )
        for seed in range(SEEDS)
    ]  # fmt: skip


def same(alone, together):
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_allclose(b.posterior_, a.posterior_, atol=NEAR)
        np.testing.assert_allclose(b.proba_, a.proba_, atol=NEAR)
        np.testing.assert_allclose(b.trace_, a.trace_, atol=NEAR)
        np.testing.assert_allclose(b.confusion_, a.confusion_, atol=NEAR)
        mine, theirs = a.network_.state_dict(), b.network_.state_dict()
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(theirs[name], mine[name], atol=5e-4, rtol=1e-3)


PARTS = {
    "lia": (LIAObjective(rounds=3), MLP(hidden=(8,), dropout=0.0)),
    "lia-e": (LIAObjective(rounds=2, latent=2, entropy=0.01), ItemEmbedding(size=4, hidden=())),
    "one-hot, per annotation": (
        LIAObjective(rounds=2, annotator_size=None, finetune="per-annotation", difficulty=False),
        MLP(hidden=(8,), dropout=0.0),
    ),
    "hard": (Hard(), MLP(hidden=(8,), dropout=0.0)),
    "crowd-layer": (CrowdLayerObjective(), MLP(hidden=(8,), dropout=0.0)),
}


@pytest.mark.parametrize("kind", PARTS)
def test_each_ends_where_it_would_alone(kind):
    """Other seeds and other annotations for each, redundancy 4 of 6."""
    objective, encoder = PARTS[kind]
    x = TABLE.items if isinstance(encoder, ItemEmbedding) else X
    tables = [TABLE.subsample(4, seed=s) for s in range(SEEDS)]
    alone = [m.fit(t, x) for m, t in zip(models(objective, encoder), tables, strict=True)]
    together = fit_together(models(objective, encoder), tables, x)
    same(alone, together)
    assert np.abs(alone[0].posterior_ - alone[1].posterior_).max() > 0.01  # or nothing was compared


def test_items_with_different_numbers_of_annotations():
    """Padding weighs nothing, with the table's own weights too."""
    draw = np.random.default_rng(1)
    tables = []
    for _ in range(SEEDS):
        keep = draw.random(TABLE.n_annotations) < 0.6
        keep[TABLE.item_ptr[:-1]] = True
        tables.append(TABLE.select(rows=keep))
    objective, encoder = (
        LIAObjective(rounds=3, leave_one_out=False),
        MLP(hidden=(8,), dropout=0.0),
    )  # left out, rounding grows
    alone = [m.fit(t, X) for m, t in zip(models(objective, encoder), tables, strict=True)]
    same(alone, fit_together(models(objective, encoder), tables, X))


def test_gold_of_each():
    golds = [np.where(np.arange(60) % 3 == s, TRUTH, -1).astype(np.int32) for s in range(SEEDS)]
    objective, encoder = PARTS["lia"]
    alone = [m.fit(TABLE, X, gold=g) for m, g in zip(models(objective, encoder), golds, strict=True)]
    same(alone, fit_together(models(objective, encoder), TABLE, X, gold=golds))


def test_models_are_ordinary_afterwards(tmp_path):
    """Saved, loaded, trained on: nothing of the stack is left in them."""
    objective, encoder = PARTS["lia"]
    model = fit_together(models(objective, encoder), TABLE, X)[1]
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(CrowdClassifier.load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    assert model.network_.head.is_finetuning


def test_classes_without_unstacking():
    objective, encoder = PARTS["lia"]
    stack = stack_trainings(models(objective, encoder), TABLE, X)
    stack.train()
    together = fit_together(models(objective, encoder), TABLE, X)
    np.testing.assert_allclose(stack.predict_proba(), [m.proba_ for m in together], atol=NEAR)
    np.testing.assert_allclose(stack.predict_posterior(), [m.posterior_ for m in together], atol=NEAR)


def test_rows_of_a_stack_move_as_rows_do():
    """StackedRowAdam with dense gradients against RowAdam with sparse ones."""
    draw = torch.Generator().manual_seed(0)
    stacked_rows = torch.nn.Parameter(torch.randn(2, 5, 3, generator=draw))
    plain = [torch.nn.Parameter(part.detach().clone()) for part in stacked_rows]
    one, many = [RowAdam([p], lr=0.1) for p in plain], StackedRowAdam([stacked_rows], lr=0.1)
    for _ in range(6):
        touched = torch.rand(2, 5, generator=draw) < 0.5
        grad = torch.randn(2, 5, 3, generator=draw) * touched[..., None]
        stacked_rows.grad = grad.clone()
        many.step()
        for part, optimizer, g, at in zip(plain, one, grad, touched, strict=True):
            part.grad = None
            rows = at.nonzero()[:, 0]
            (torch.nn.functional.embedding(rows, part, sparse=True) * g[rows]).sum().backward()
            optimizer.step()
    torch.testing.assert_close(stacked_rows, torch.stack(list(plain)))


def test_no_models():
    assert fit_together([], TABLE, X) == []


@pytest.mark.parametrize(
    ("change", "wanted"), [({"sam": 0.05}, "None"), ({"mixup": 0.2}, "None"), ({"schedule": "cosine"}, "'constant'")]
)
def test_trainings_that_cannot_be_stacked(change, wanted):
    with pytest.raises(KeywordNotStackable) as caught:
        fit_together(models(*PARTS["lia"], **change), TABLE, X)
    assert (caught.value.name, caught.value.expected) == (*change, wanted)
    with pytest.raises(TrainingsNotStackable) as other_batches:
        fit_together(models("annot-mix", Identity()), TABLE, X)
    assert other_batches.value.reason == "batches"


def test_models_that_differ():
    objective, encoder = PARTS["lia"]
    different = [*models(objective, encoder)[:2], *models(LIAObjective(rounds=4), encoder)[2:]]
    with pytest.raises(StackedModelsDiffer) as caught:
        fit_together(different, TABLE, X)
    assert caught.value.name == "objective"


def test_tables_that_differ():
    objective, encoder = PARTS["lia"]
    with pytest.raises(ArgumentLengthsDiffer) as uneven:
        fit_together(models(objective, encoder), [TABLE, TABLE], X)
    assert uneven.value.lengths == {"models": 3, "tables": 2, "gold": 3}
    fewer = TABLE.select(annotators=TABLE.annotators[1:])
    silent = TABLE.select(rows=TABLE.item != 3)
    for other, what in ((fewer, "annotators"), (silent, "items with labels")):
        with pytest.raises(StackedTablesDiffer) as different:
            fit_together(models(objective, encoder), [TABLE, TABLE, other], X)
        assert different.value.axis == what


def sized(seed=0, sizes=(3, 4), room=None, **more):
    own = {"item_size": sizes[0], "annotator_size": sizes[1], "dropout": 0.0}
    objective = LDLNMObjective(**own, room=room)
    return CrowdClassifier(encoder=Identity(), objective=objective, epochs=4, batch_size=17, device="cpu", seed=seed,
                           learning_rate=0.01, **more)  # fmt: skip


def test_sizes_that_have_room_are_trained_together():
    sizes = [(3, 4), (5, 2), (3, 4)]
    alone = [sized(seed, size).fit(TABLE, X) for seed, size in enumerate(sizes)]
    roomy = [sized(seed, size, room=(6, 5)) for seed, size in enumerate(sizes)]
    for a, b in zip(alone, fit_together(roomy, TABLE, X), strict=True):
        np.testing.assert_allclose(b.proba_, a.proba_, atol=2e-5)
        np.testing.assert_allclose(b.trace_, a.trace_, atol=2e-5)
        head, (item, annotator) = b.network_.head, sizes[b.seed]
        used, table = item + annotator, head.table.weight
        for weight in (head.item.weight[item:], table[:, annotator:], head.item_to_pair.weight[:, item:],
                       head.residual.weight[used:], head.to_label.weight[:, used:]):  # fmt: skip
            assert weight.numel()
            assert not weight.any()
    sparse = TABLE.select(rows=(np.arange(len(TABLE)) % 2 > 0) | (TABLE.item % 3 == 0))
    tables = [TABLE, sparse]
    for a, b in zip(
        [sized(seed, (3, 4)).fit(table, X) for seed, table in enumerate(tables)],
        fit_together([sized(seed, (3, 4)) for seed in range(2)], tables, X),
        strict=True,
    ):
        np.testing.assert_allclose(b.trace_, a.trace_, atol=2e-5)
    with pytest.raises(TrainingsNotStackable) as shapes:
        fit_together([sized(seed, (3, 4)) for seed in range(2)], [TABLE, TABLE.select(rows=TABLE.annotator > 0)], X)
    assert shapes.value.reason == "shapes"
    with pytest.raises(StackedModelsDiffer):
        fit_together([sized(0, (3, 4)), sized(1, (5, 2))], TABLE, X)


def test_many_questions_are_stacked_too():
    questions = {"a": TABLE, "b": TABLE.subsample(4, seed=1)}
    models = [LIAML(steps=60, hidden=(16,), label_size=6, annotator_size=4, seed=s) for s in (0, 3)]
    stack = Stack([model.prepare_run(questions, X) for model in models])
    traces = stack.train()
    stack.unstack()
    for model, run, trace in zip(models, stack.runs, traces, strict=True):
        model.store_results(run, trace)
    alone = LIAML(steps=60, hidden=(16,), label_size=6, annotator_size=4).fit(questions, X)
    for name in questions:
        np.testing.assert_allclose(models[0].posterior_[name], alone.posterior_[name], atol=0.02)
        assert np.abs(models[1].posterior_[name] - alone.posterior_[name]).max() > 0.01
