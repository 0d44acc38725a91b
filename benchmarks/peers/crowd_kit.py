"""Worker for crowd-kit. Its answers are read by name: neither its rows nor its columns are in a fixed order.

Two of its methods need help. `Wawa.predict` and `ZeroBasedSkill.predict` ask scikit-learn whether they are fitted, and
that of 1.9 raises an AttributeError instead: their skills go into `MajorityVote`, as `predict` would have
done. `MACE` takes counts in the order of sorted names for counts in the order of first appearance, so it gets rows and
labels for which the two are the same; with `as_given` it gets them as they come.
"""

import pandas as pd
import protocol
from crowdkit.aggregation import classification

METHODS = {
    "majority-vote": classification.MajorityVote,
    "wawa": classification.Wawa,
    "zero-based-skill": classification.ZeroBasedSkill,
    "dawid-skene": classification.DawidSkene,
    "one-coin": classification.OneCoinDawidSkene,
    "glad": classification.GLAD,
    "mace": classification.MACE,
    "kos": classification.KOS,
    "m-msr": classification.MMSR,
}
SEEDED = {"mace", "kos", "m-msr"}
VOTED = {"wawa", "zero-based-skill", "m-msr"}  # skills first, then a vote weighted by them


def prepare(item, annotator, label, n_items, n_classes):
    frame = pd.DataFrame({"task": item, "worker": annotator, "label": label})
    frame.attrs = {"items": range(n_items), "classes": range(n_classes)}
    return frame


def fit(frame, method, params):
    seed, as_given = params.pop("seed", 0), params.pop("as_given", False)
    model = METHODS[method](**params, **({"random_state": seed} if method in SEEDED else {}))
    rows, names = frame, None
    if method == "mace" and not as_given:
        rows = frame.sort_values(["worker", "label"])
        rows["label"], names = pd.factorize(rows["label"])
    model.fit(rows)
    answer = classification.MajorityVote().fit(frame, skills=model.skills_) if method in VOTED else model
    if hasattr(answer, "probas_"):
        posterior = answer.probas_ if names is None else answer.probas_.rename(columns=dict(enumerate(names)))
        answer = posterior.reindex(index=frame.attrs["items"], columns=frame.attrs["classes"], fill_value=0.0)
    else:
        answer = answer.labels_.reindex(frame.attrs["items"], fill_value=-1)
    return model, answer.to_numpy()


def read(fitted):
    model, answer = fitted
    trace = getattr(model, "loss_history_", [])
    steps = len(trace) or getattr(model, "n_iter", 0) * getattr(model, "n_restarts", 1)
    return answer, steps, trace


if __name__ == "__main__":
    protocol.serve(prepare, fit, read, ["crowd-kit", "pandas", "numpy"])
