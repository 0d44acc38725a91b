"""LIA-ML: its equations as loops, LIA as the case of one question, what is shared, a question that is added later."""

import copy
import itertools

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from torch import nn

from dissensus import Annotations, Questions
from dissensus.common.exceptions import UnknownEntry
from dissensus.exceptions import BadParameter, DataError, NotFitted, UnreadableFile
from dissensus.features.exceptions import SingleString
from dissensus.learning.exceptions import (
    QuestionsDiffer,
    QuestionsNeeded,
    RepeatedQuestion,
    UnknownItem,
)
from dissensus.learning.lia_ml import LIAML
from dissensus.learning.objectives import LIAObjective
from dissensus.learning.objectives.lia_ml import LIAMLObjective
from dissensus.models.exceptions import NoAnnotations
from learning.tables import WIDTH
from tables import random_table

A, I = 7, 23
SIZES = {"colour": 4, "big": 2, "age": 3}  # classes of each question; "big" comes second by name
FORMS = {
    "plain": {},
    "one-hot": {"annotator_size": None},
    "latent": {"latent": 3, "annotator_size": 5},
    "easy": {"difficulty": False, "label_size": 6},
}
ROWS = {
    "hard": {},
    "both": {"weight": lambda rng, n: rng.uniform(0, 3, n), "proba": True},
}


def tables(rows="hard"):
    """Three questions with different numbers of classes; "colour" has weights and probabilities where asked for."""
    found = {}
    for seed, (name, K) in enumerate(SIZES.items()):
        extra = dict(ROWS[rows]) if name == "colour" else {}
        if extra.pop("proba", False):
            extra["proba"] = lambda rng, n: rng.dirichlet(np.ones(4), n)
        found[name] = random_table(seed, n_items=I, n_annotators=A, n_classes=K, n=41 + 10 * seed, **extra)
    return found


def some_gold():
    return {"age": np.where(np.arange(I) % 3 == 0, 1, -1), "colour": np.where(np.arange(I) % 5 == 1, 3, -1)}


def scrambled(objective, questions, gold=None):
    """(objective, head, z, targets of all items); annotators and classes that differ."""
    objective.fit(questions, gold, 0)
    torch.manual_seed(5)
    head = objective.head(lambda: nn.Sequential(nn.Linear(WIDTH, 9), nn.Tanh()), 9)
    with torch.no_grad():
        for parameter in (head.competence.table.weight, head.labels.offset, head.labels.pair_bias):
            parameter.add_(torch.randn(parameter.shape))
    z = torch.randn(objective.n_items_, WIDTH)
    return objective, head, z, objective.targets().take(torch.arange(objective.n_items_))


def numbers(tensor):
    return tensor.detach().double().numpy()


def literal(objective, head, z, questions):
    """Of every question (sorted): log h (I, K); of every row its weight, log Q[·, y] (K,), Q (K, K)."""
    labels, L = head.labels, objective.latent
    T = objective.label_size
    A_, a, B_, b = (numbers(x) for x in (*labels.true.parameters(), *labels.given.parameters()))
    y = numbers(head.truth(z))
    d = np.zeros((len(z), T, L)) if head.difficulty is None else numbers(head.difficulty(z)).reshape(-1, T, L)
    everyone = numbers(head.competence(torch.arange(A))[0]).reshape(A, T, L)
    found = {}
    for q, name in enumerate(sorted(questions)):
        table = questions[name]
        K = table.n_classes
        t = [
            numbers(labels.common)[objective.names_.index(str(table.classes[k]))] + numbers(labels.offset)[q, k]
            for k in range(K)
        ]
        logits = np.array([[y[i] @ t[k] + numbers(labels.bias)[q, k] for k in range(K)] for i in range(len(z))])
        rows = []
        for n in range(table.n_annotations):
            Q = np.zeros((K, K))
            for k, g in itertools.product(range(K), range(K)):
                phi = (A_ @ t[k] + a) * (B_ @ t[g] + b) / np.sqrt(T)
                for m in range(L):
                    D = phi @ d[table.item[n], :, m]
                    C = phi @ everyone[table.annotator[n], :, m] + numbers(labels.pair_bias)[q, k, g, m]
                    Q[k, g] += np.exp(D + C)
            Q /= Q.sum(axis=1, keepdims=True)
            shares = np.eye(K)[table.label[n]] if table.proba is None else table.proba[n]
            rows.append((1.0 if table.weight is None else table.weight[n], np.log(Q) @ shares, Q))
        found[name] = (logits - logsumexp(logits, axis=1, keepdims=True), rows)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS)
def test_e_step_is_the_literal_loop(rows, form):
    questions, gold = tables(rows), some_gold()
    objective, head, z, targets = scrambled(LIAMLObjective(**FORMS[form]), questions, gold)
    found = numbers(objective.log_posterior(head, z, targets).softmax(dim=1)).reshape(I, 3, 4)
    for q, (name, (log_h, parts)) in enumerate(literal(objective, head, z, questions).items()):
        table, K = questions[name], questions[name].n_classes
        for i in range(I):
            log_q = log_h[i] + sum(parts[n][0] * parts[n][1] for n in np.flatnonzero(table.item == i))
            known = gold.get(name, np.full(I, -1))[i]
            expected = softmax(log_q) if known < 0 else np.eye(K)[known]
            np.testing.assert_allclose(found[i, q], [*expected, *[0] * (4 - K)], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS)
def test_losses_are_the_literal_sums(rows, form):
    questions, gold = tables(rows), some_gold()
    objective, head, z, targets = scrambled(
        LIAMLObjective(penalty=0.7, residual_penalty=0.4, difficulty_penalty=0.6, **FORMS[form]), questions, gold
    )
    parts = literal(objective, head, z, questions)
    rng, per_pair = np.random.default_rng(3), []
    bound = marginal = penalty = 0.0
    for q, (name, (log_h, rows_)) in enumerate(parts.items()):
        table, K = questions[name], questions[name].n_classes
        known = gold.get(name, np.full(I, -1))
        target = rng.dirichlet(np.ones(K), I)
        head.q[q::3, :K] = torch.as_tensor(target)
        for i in range(I):
            mine = np.flatnonzero(table.item == i)
            joint = log_h[i] + sum(rows_[n][0] * rows_[n][1] for n in mine)
            if mine.size or known[i] >= 0:  # an item that nobody was asked about has nothing to say
                bound -= target[i] @ joint
            if mine.size:
                per_pair.append(sum(rows_[n][0] for n in mine))
            marginal -= logsumexp(joint if known[i] < 0 else joint[known[i]])
        penalty += sum(w * 4 / K**2 * (np.log(Q) ** 2).sum() for w, _, Q in rows_)
    penalty *= 0.7 / np.mean(per_pair)
    given = {j for t in questions.values() for j in t.annotator[t.weight > 0 if t.weight is not None else slice(None)]}
    own = numbers(head.competence(torch.arange(A))[0]).reshape(A, -1) - numbers(head.competence.crowd)
    penalty += 0.4 / 2 * sum((own[j] ** 2).sum() for j in given)
    if head.difficulty is not None:
        penalty += 0.6 / 2 * (numbers(head.item_difficulty(z)) ** 2).sum()
    for head.is_finetuning, expected in ((False, bound), (True, marginal)):
        np.testing.assert_allclose(objective.loss(head, z, targets).item(), expected + penalty, rtol=1e-4)


@pytest.mark.parametrize("difficulty", [True, False])
def test_one_question_is_lia(difficulty):
    """With last layers made of the embeddings', LIA has the same losses and the same posterior."""
    table = tables()["colour"]
    keywords = {
        "difficulty": difficulty,
        "penalty": 0.4,
        "entropy": 0.1,
        "residual_penalty": 0,
        "difficulty_penalty": 1,
    }
    many, head, z, targets = scrambled(LIAMLObjective(**keywords), {"colour": table})
    lia = LIAObjective(**keywords).fit(table, None, 0)
    torch.manual_seed(0)
    same = lia.head(lambda: nn.Sequential(nn.Linear(WIDTH, 9), nn.Tanh()), 9)
    labels = head.labels
    with torch.no_grad():
        t, phi = labels.classes()[0], labels.pair_embeddings()[0].flatten(0, 1)  # (K, T), (K·K, S)
        for mine, theirs, by, bias in (
            (same.truth[-1], head.truth[-1], t, labels.bias[0]),
            *([(same.difficulty[-1], head.difficulty[-1], phi, 0)] if difficulty else []),
        ):
            mine.weight.copy_(by @ theirs.weight)
            mine.bias.copy_(by @ theirs.bias + bias)
        same.competence.linear.weight.copy_(phi @ head.competence.linear.weight)
        same.competence.crowd.copy_(phi @ head.competence.crowd + labels.pair_bias[0].flatten())
        same.competence.table.weight.copy_(head.competence.table.weight)
        same.truth[0].load_state_dict(head.truth[0].state_dict())
        if difficulty:
            same.difficulty[0].load_state_dict(head.difficulty[0].state_dict())
        q = torch.rand(I, 4).softmax(dim=1) * torch.as_tensor(lia.train_mask_)[:, None]
        same.q.copy_(q)
        head.q.copy_(q)
    theirs = lia.targets().take(torch.arange(I))
    for head.is_finetuning in (False, True):
        same.is_finetuning = head.is_finetuning
        assert many.loss(head, z, targets).item() == pytest.approx(lia.loss(same, z, theirs).item(), rel=1e-5)
    posterior = lia.log_posterior(same, z, theirs).softmax(dim=1)
    torch.testing.assert_close(many.log_posterior(head, z, targets).softmax(dim=1), posterior, rtol=1e-4, atol=1e-6)


def test_rows_of_no_weight_are_not_there():
    questions = tables()
    keep = {name: np.random.default_rng(1).random(len(t)) < 0.6 for name, t in questions.items()}
    less = {name: table.select(rows=keep[name]) for name, table in questions.items()}
    more = {
        name: Annotations.from_arrays(
            t.item, t.annotator, t.label, classes=t.n_classes, weight=keep[name].astype(float),
            items=np.arange(I), annotators=np.arange(A),
        )
        for name, t in questions.items()
    }  # fmt: skip
    found = []
    for one in (less, more):
        objective, head, z, targets = scrambled(LIAMLObjective(), one)
        head.q.fill_(0.25)
        head.labels.bias.data.zero_()
        found.append((objective.loss(head, z, targets).item(), objective.log_posterior(head, z, targets)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-5)


# The plain form -------------------------------------------------------------------------------------------------------


def crowd(n=80, questions="abcd", annotators=6, seed=0):
    """Yes/no questions whose answers are directions of the same features; annotators with skills: arrays, X, truth."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)).astype(np.float32)
    plane = rng.standard_normal((5, 2)) @ rng.standard_normal(
        (2, len(questions))
    )  # what is asked about lies in a plane
    truth = (X @ plane > 0).astype(int)
    skill = rng.uniform(0.65, 0.95, annotators)
    rows = []
    for i, (q, name) in itertools.product(range(n), enumerate(questions)):
        for j in rng.permutation(annotators)[:4]:
            label = truth[i, q] if rng.random() < skill[j] else 1 - truth[i, q]
            rows.append((name, f"i{i:03d}", f"w{j}", str(label)))
    return [np.array(column) for column in zip(*rows, strict=True)], X, truth


SMALL = {"steps": 150, "hidden": (16,), "label_size": 6, "annotator_size": 4}


@pytest.fixture(scope="module")
def fitted():
    columns, X, truth = crowd()
    return LIAML(**SMALL).fit(Questions.from_arrays(*columns), X), columns, X, truth


def test_answers_are_found_and_shaped(fitted):
    model, _, X, truth = fitted
    assert model.questions_ == list("abcd")
    for q, name in enumerate("abcd"):
        assert model.posterior_[name].shape == model.proba_[name].shape == (80, 2)
        assert (model.predict()[name] == truth[:, q].astype(str)).mean() > 0.85
        np.testing.assert_allclose(model.predict_proba(X)[name], model.proba_[name], atol=1e-6)
        assert (model.predict(X, [name])[name] == model.classes_[name][model.proba_[name].argmax(axis=1)]).all()
    assert list(model.predict_proba(X[:3], ["c", "a"])) == ["c", "a"]
    assert model.embedding_.shape == (6, 4)
    assert model.label_embedding_["b"].shape == (2, 6)


def test_competence_is_the_mean_diagonal_of_the_confusion_under_the_posterior(fitted):
    model, _, _, _ = fitted
    items = model.items_[[4, 9, 30]]
    confusion = model.confusion("c", items, ["w3", "nobody"])
    assert confusion.shape == (3, 2, 2, 2)
    np.testing.assert_allclose(confusion.sum(axis=3), 1, rtol=1e-6)
    competence = model.competence("c", items, ["w3", "nobody"])
    for i, row in enumerate([4, 9, 30]):
        for j in range(2):
            expected = sum(model.posterior_["c"][row, k] * confusion[i, j, k, k] for k in range(2))
            assert competence[i, j] == pytest.approx(expected, rel=1e-6)
        assert model.difficulty_["c"][row] == pytest.approx(1 - competence[i, 1], rel=1e-6)
    assert model.competence("a").shape == (80, 6)


def test_confusion_is_that_of_the_losses(fitted):
    """The label probabilities behind the likelihood are those that are shown."""
    model, _, _, _ = fitted
    block = model._blocks[0]
    targets = block.objective.targets().take(torch.arange(80))
    with torch.inference_mode():
        pairs = targets["row"] * 4 + targets["question"]
        z = model._encoded.columns["input"]
        shown = model.confusion("b")
        raw = {k: v for k, v in targets.items() if k != "question"} | {"row": pairs, "item": targets["item"].flatten()}
        log_q, _ = block.objective._log_q(block.head, z, raw)
    mine = (targets["question"] == 1).numpy()
    expected = shown[targets["row"].numpy()[mine], targets["annotator"].numpy()[mine]]
    np.testing.assert_allclose(log_q.exp().numpy()[mine], expected, rtol=1e-4)


def test_order_of_rows_and_of_questions_changes_no_bit(fitted):
    model, columns, X, _ = fitted
    order = np.random.default_rng(4).permutation(len(columns[0]))
    shuffled = dict(reversed(list(Questions.from_arrays(*(c[order] for c in columns)).items())))
    assert list(shuffled) == list("dcba")
    again = LIAML(**SMALL).fit(shuffled, X)
    for name in "abcd":
        assert np.array_equal(model.posterior_[name], again.posterior_[name])


def test_other_names_of_questions_in_another_order_say_the_same(fitted):
    model, columns, X, _ = fitted
    names = dict(zip("abcd", ["z", "m", "y", "b"], strict=True))
    renamed = [np.array([names[q] for q in columns[0]]), *columns[1:]]
    again = LIAML(**SMALL).fit(Questions.from_arrays(*renamed), X)
    for old, new in names.items():
        np.testing.assert_allclose(model.posterior_[old], again.posterior_[new], atol=0.02)  # sums in another order


def test_a_question_asked_twice_has_one_answer(fitted):
    _, columns, X, _ = fitted
    rows = columns[0] != "d"
    questions = dict(Questions.from_arrays(*(c[rows] for c in columns)))
    model = LIAML(**SMALL).fit(questions | {"again": questions["b"]}, X)
    np.testing.assert_allclose(model.posterior_["b"], model.posterior_["again"], atol=0.02)
    np.testing.assert_allclose(model.label_embedding_["b"], model.label_embedding_["again"], atol=0.01)
    assert np.abs(model.label_embedding_["b"] - model.label_embedding_["a"]).max() > 0.05


def test_a_strong_prior_ties_classes_of_one_name(fitted):
    model, columns, X, _ = fitted
    tied = LIAML(**SMALL | {"steps": 40}, prior=1e5).fit(Questions.from_arrays(*columns), X)
    for one, least, most in ((tied, 0, 0.05), (model, 0.2, np.inf)):
        assert least <= np.abs(one.label_embedding_["a"] - one.label_embedding_["d"]).max() <= most


def test_without_features_items_have_vectors_of_their_own():
    columns, _, truth = crowd(40, "ab")
    model = LIAML(**SMALL, item_size=3, difficulty=False).fit(Questions.from_arrays(*columns))
    assert (model.predict()["a"] == truth[:, 0].astype(str)).mean() > 0.8
    with pytest.raises(DataError):
        model.predict(np.zeros((2, 3)))


def test_known_items_are_certain(fitted):
    _, columns, X, truth = fitted
    gold = {"c": np.where(np.arange(80) < 20, 1 - truth[:, 2], -1)}  # wrong, so that it can only come from there
    model = LIAML(**SMALL | {"steps": 20}).fit(Questions.from_arrays(*columns), X, gold=gold)
    assert (model.posterior_["c"].argmax(axis=1)[:20] == gold["c"][:20]).all()
    assert (model.posterior_["c"].max(axis=1)[:20] == 1).all()
    assert (model.posterior_["a"].max(axis=1)[:20] < 1).all()


# One more question ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three():
    """A model of three questions, and the table of a fourth with labels of 20 items, one annotator being new."""
    columns, X, truth = crowd(120, "abcd", seed=2)
    late = columns[0] == "d"
    model = LIAML(**SMALL).fit(Questions.from_arrays(*(c[~late] for c in columns)), X)
    rows = late & np.isin(columns[1], [f"i{i:03d}" for i in range(20)])
    who = np.where(columns[2] == "w5", "stranger", columns[2])
    return model, Annotations.from_arrays(columns[1][rows], who[rows], columns[3][rows]), X, truth


@pytest.fixture
def one_more(three):
    return copy.deepcopy(three[0]), *three[1:]


def test_an_added_question_is_learnt_from_few_labels_and_leaves_the_others_as_they_were(one_more):
    model, table, X, truth = one_more
    before = {
        name: (model.posterior_[name].copy(), model.predict_proba(X)[name], model.competence(name)) for name in "abc"
    }
    weights = {k: v.clone() for k, v in model._blocks[0].head.state_dict().items() if isinstance(v, torch.Tensor)}
    model.add_question("d", table)
    assert model.questions_ == list("abcd")
    for name, (posterior, proba, competence) in before.items():
        assert np.array_equal(posterior, model.posterior_[name])
        assert np.array_equal(proba, model.predict_proba(X)[name])
        assert np.array_equal(competence, model.competence(name))
    for key, value in model._blocks[0].head.state_dict().items():
        assert not isinstance(value, torch.Tensor) or torch.equal(value, weights[key]), key
    right = model.predict(X, ["d"])["d"] == truth[:, 3].astype(str)
    assert right[20:].mean() > 0.8  # nobody labelled these
    assert model.posterior_["d"].shape == (120, 2)
    with pytest.raises(RepeatedQuestion):
        model.add_question("d", table)


def test_a_new_annotator_of_an_added_question_is_an_average_one(one_more):
    model, table, _, _ = one_more
    model.add_question("d", table)
    found = model.confusion("d", model.items_[:3], ["w0", "stranger", "nobody"])
    np.testing.assert_allclose(found[:, 1], found[:, 2], rtol=1e-5)
    block = model._blocks[1]
    rows = block.head.competence.table.weight
    totals = torch.as_tensor(block.objective.label_totals_)
    torch.testing.assert_close(rows[6], block.head.competence.rows_or_average(torch.tensor([-1]), totals)[0])
    assert (table.annotators == "stranger").any()
    assert (block.objective.targets().columns["annotations"].columns["annotator"] == 6).any()


def test_an_added_question_may_have_classes_of_its_own(one_more):
    model, table, X, _ = one_more
    truth = np.array(["no", "maybe", "yes"])[np.arange(120) % 3]
    other = Annotations.from_arrays(table.items[table.item], table.annotators[table.annotator], truth[table.item])
    model.add_question("new", other)
    assert model.classes_["new"].tolist() == ["maybe", "no", "yes"]
    assert model.predict_proba(X, ["new"])["new"].shape == (120, 3)
    assert (model.predict(None, ["new"])["new"] == truth)[:20].mean() > 0.8


# On disk --------------------------------------------------------------------------------------------------------------


def assert_same_answers(loaded, model, X):
    """To the bit."""
    assert loaded.get_params() == model.get_params()
    assert loaded.questions_ == model.questions_
    for name in ("posterior_", "proba_", "difficulty_", "label_embedding_", "classes_"):
        own, other = getattr(model, name), getattr(loaded, name)
        assert list(own) == list(other)
        for question in own:
            np.testing.assert_array_equal(own[question], other[question], strict=True)
    for name in ("items_", "annotators_", "embedding_", "trace_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(loaded, name), strict=True)
    for question in model.questions_:
        who = [*model.annotators_, 99 if model.annotators_.dtype.kind == "i" else "nobody"]
        np.testing.assert_array_equal(model.confusion(question, None, who), loaded.confusion(question, None, who))
        np.testing.assert_array_equal(model.competence(question), loaded.competence(question))
        np.testing.assert_array_equal(model.predict()[question], loaded.predict()[question])
        if X is not None:
            np.testing.assert_array_equal(model.predict_proba(X)[question], loaded.predict_proba(X)[question])


def test_all_answers_are_the_same_after_loading_and_so_is_a_question_that_is_added_then(one_more, tmp_path):
    model, table, X, _ = one_more
    path = model.save(tmp_path)
    assert path.name == "lia-ml.safetensors"
    before = torch.get_rng_state()
    loaded = LIAML.load(tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    assert_same_answers(loaded, model, X[::-1])
    for each in (loaded, model):
        each.add_question("d", table)
    assert_same_answers(loaded, model, X[::-1])
    assert_same_answers(LIAML.load(loaded.save(tmp_path / "more")), model, X[::-1])  # with a block of its own


@pytest.mark.parametrize("form", [form for form in FORMS if form != "plain"])
def test_every_form_is_the_same_after_loading(form, tmp_path):
    model = LIAML(steps=5, hidden=(4,), **FORMS[form]).fit(tables("both"), gold=some_gold())  # without features
    assert_same_answers(LIAML.load(model.save(tmp_path).parent), model, None)


def test_features_of_a_file_are_in_the_model(fitted, tmp_path):
    _, columns, X, _ = fitted
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = LIAML(steps=5, hidden=(4,)).fit(Questions.from_arrays(*columns), mapped)
    expected = model.competence("a")
    model.save(tmp_path)
    del model, mapped
    (tmp_path / "X.npy").unlink()
    np.testing.assert_array_equal(LIAML.load(tmp_path).competence("a"), expected)


def test_files_that_are_no_liaml_are_named(fitted, tmp_path):
    with pytest.raises(NotFitted):
        LIAML().save(tmp_path)
    with pytest.raises(UnreadableFile):
        LIAML.load(tmp_path)
    fitted[0].save(tmp_path)
    with pytest.raises(BadParameter):
        LIAML.load(tmp_path, device="gpu")


# AnnotatorErrors ------------------------------------------------------------------------------------------------------


def test_mistakes_are_named(fitted):
    model, columns, X, _ = fitted
    questions = Questions.from_arrays(*columns)
    with pytest.raises(NotFitted):
        LIAML().predict()
    with pytest.raises(NotFitted):
        LIAML().add_question("e", questions["a"])
    for keywords in ({"steps": 0}, {"prior": -1}, {"label_size": 0}, {"rounds": -1}):
        with pytest.raises(BadParameter):
            LIAML(**keywords).fit(questions, X)
    with pytest.raises(QuestionsNeeded):
        LIAML().fit(questions["a"], X)
    with pytest.raises(NoAnnotations):
        LIAML().fit({}, X)
    with pytest.raises(DataError):
        LIAML().fit(questions, X[1:])
    with pytest.raises(QuestionsDiffer) as differ:
        LIAML().fit({"a": questions["a"], "b": questions["b"].select(items=np.arange(80) > 2)}, X)
    assert (differ.value.first_question, differ.value.second_question, differ.value.axis) == ("a", "b", "items")
    with pytest.raises(UnknownEntry):
        LIAML().fit(questions, X, gold={"x": np.zeros(80, int)})
    with pytest.raises(NoAnnotations):
        LIAML().fit({"a": questions["a"].select(rows=np.zeros(len(questions["a"]), bool))}, X)
    with pytest.raises(UnknownEntry) as unknown:
        model.predict_proba(X, ["x"])
    assert (unknown.value.name, unknown.value.entries) == ("x", tuple("abcd"))
    with pytest.raises(SingleString):
        model.predict_proba(X, "a")
    with pytest.raises(DataError):
        model.competence("a", ["zebra"])
    with pytest.raises(UnknownItem):
        model.add_question("e", Annotations.from_arrays(["zebra"], ["w0"], ["1"], classes=["0", "1"]))


def test_annotators_may_be_numbers():
    item, annotator = np.repeat(np.arange(12), 3), np.tile(np.arange(3), 12)
    label = np.random.default_rng(0).integers(0, 2, 36)
    by_number = LIAML(steps=5).fit({"a": Annotations.from_arrays(item, annotator, label)})
    by_text = LIAML(steps=5).fit({"a": Annotations.from_arrays(item, annotator.astype(str), label)})
    np.testing.assert_array_equal(by_number.difficulty_["a"], by_text.difficulty_["a"])
    by_number.add_question("b", Annotations.from_arrays([1, 2], [1, 77], [0, 1]))
    assert by_number.competence("b", [1], [0, 77]).shape == (1, 2)
    with pytest.raises(DataError):
        by_text.competence("a", None, "77")
    with pytest.raises(DataError):
        by_text.add_question("c", "labels.csv")


def test_questions_are_texts_and_have_tables():
    table = Annotations.from_arrays([0, 0], [0, 1], [0, 1])
    with pytest.raises(QuestionsNeeded):
        LIAML().fit({1: table, "b": table})
    with pytest.raises(QuestionsNeeded):
        LIAML().fit({"b": 3})
