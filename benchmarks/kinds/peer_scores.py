"""Scores of other libraries for comparisons; runs in their own environment and needs nothing of ours.

    PYTHON benchmarks/kinds/peer_scores.py evalica-bradley-terry FOLDS.json

FOLDS.json: a list of {"left": […], "right": […], "winner": […], "annotator": […]}; prints a list of {thing: score}.
"""

import json
import sys
from pathlib import Path


def evalica_scores(fold, method):
    import evalica
    import pandas as pd

    outcomes = {"left": evalica.Winner.X, "right": evalica.Winner.Y, "tie": evalica.Winner.Draw}
    winners = [outcomes[one] for one in fold["winner"]]
    found = getattr(evalica, method)(pd.Series(fold["left"]), pd.Series(fold["right"]), pd.Series(winners))
    return {str(name): float(score) for name, score in found.scores.items()}


def crowd_kit_scores(fold):
    import pandas as pd
    from crowdkit.aggregation import NoisyBradleyTerry

    rows = [
        row for row in zip(*(fold[k] for k in ("annotator", "left", "right", "winner")), strict=True) if row[3] != "tie"
    ]
    frame = pd.DataFrame(rows, columns=["worker", "left", "right", "label"])
    frame["label"] = frame["left"].where(frame["label"] == "left", frame["right"])
    found = NoisyBradleyTerry(random_state=0).fit_predict(frame)
    return {str(name): float(score) for name, score in found.items()}


METHODS = {
    "evalica-bradley-terry": lambda fold: evalica_scores(fold, "bradley_terry"),
    "evalica-newman": lambda fold: evalica_scores(fold, "newman"),
    "evalica-elo": lambda fold: evalica_scores(fold, "elo"),
    "crowd-kit-noisy-bradley-terry": crowd_kit_scores,
}

if __name__ == "__main__":
    name, path = sys.argv[1:]
    folds = json.loads(Path(path).read_text())
    print(json.dumps([METHODS[name](fold) for fold in folds]))
