"""Metrics, agreement, calibration, intervals, significance: functions of arrays.

An example of each:

>>> import numpy as np
>>> from dissensus import evaluation as ev
>>> gold, predicted = np.array([0, 1, 2, 2]), np.array([0, 1, 2, 1])
>>> ev.accuracy(gold, predicted), round(ev.balanced_accuracy(gold, predicted), 3)
(0.75, 0.833)
>>> round(ev.macro_f1(gold, predicted), 3), round(ev.micro_f1(gold, predicted, classes=[1, 2]), 3)
(0.778, 0.667)
>>> list(ev.hard_scores(gold, predicted))
['accuracy', 'balanced_accuracy', 'macro_f1', 'micro_f1']
>>> y, h = np.array([[0.75, 0.25], [0.5, 0.5]]), np.array([[0.9, 0.1], [0.6, 0.4]])
>>> for distance in (ev.cross_entropy, ev.kl_divergence, ev.inverse_kl_divergence, ev.jensen_shannon):
...     print(distance.__name__, distance(y, h).round(3))
cross_entropy [0.655 0.714]
kl_divergence [0.092 0.02 ]
inverse_kl_divergence [0.073 0.02 ]
jensen_shannon [0.02  0.005]
>>> for distance in (ev.total_variation, ev.manhattan, ev.wasserstein, ev.brier):
...     print(distance.__name__, distance(y, h).round(3))
total_variation [0.15 0.1 ]
manhattan [0.3 0.2]
wasserstein [0.15 0.1 ]
brier [0.045 0.02 ]
>>> ev.entropy(y).round(3), round(ev.entropy_correlation(y, h), 3), round(ev.soft_scores(y, h)["manhattan"], 3)
(array([0.562, 0.693]), 1.0, 0.25)
>>> ev.expected_accuracy([0, 1], y), round(ev.log_loss([0, 1], h), 3)
(0.75, 0.511)
>>> curve = ev.reliability_curve([0, 1], h, bins=5)
>>> type(curve).__name__, curve.error == ev.expected_calibration_error([0, 1], h, bins=5)
('ReliabilityCurve', True)
>>> from dissensus.table.simulate import simulate, simulate_kind
>>> crowd = simulate(200, 12, 3, seed=1)
>>> table = crowd.annotations
>>> for coefficient in (ev.percent_agreement, ev.krippendorff_alpha, ev.fleiss_kappa, ev.gwet_ac1):
...     print(coefficient(table))
0.581 (95 % interval 0.544 to 0.616)
0.368 (95 % interval 0.311 to 0.419)
0.367 (95 % interval 0.310 to 0.418)
0.374 (95 % interval 0.317 to 0.427)
>>> list(ev.agreement(table)), ev.ratings_per_item(table).max()
(['percent', 'krippendorff_alpha', 'fleiss_kappa', 'gwet_ac1'], np.int64(5))
>>> pairs = ev.cohen_kappas(table)
>>> type(pairs).__name__, round(float(pairs.kappa[0]), 3)
('Pairs', 0.297)
>>> numbers = simulate_kind("numbers", 60, 6, seed=1).annotations
>>> list(ev.numeric_agreement(numbers)), ev.concordances(numbers).kappa.shape
(['mean_difference', 'krippendorff_alpha', 'icc', 'icc_of_mean'], (15,))
>>> ev.absolute_distance(table, crowd.truth[table.item]).shape
(200,)
>>> seen, hidden = ev.hide_annotators(table, 0.25, seed=0)
>>> seen.n_annotations + hidden.n_annotations
1000
>>> first, second = np.repeat([1, 0], [80, 20]), np.repeat([1, 0], [70, 30])
>>> ev.paired_bootstrap(first, second)
Difference(mean=Estimate(value=0.1, low=0.05, high=0.17, level=0.95), p_value=0.003996003996003996)
>>> ev.bootstrap_sums(first).resampled.shape
(1000, 1)
>>> from dissensus.table.simulate_spans import simulate_spans
>>> list(ev.span_agreement(simulate_spans(10, 4, 2, redundancy=3, seed=1).annotations))
['exact_f1', 'overlap_f1', 'krippendorff_alpha', 'unitizing_alpha']
>>> ev.span_scores({("d", 0, 2, "x")}, {("d", 0, 2, "x"), ("d", 4, 5, "y")})
{'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666}
"""

from dissensus.evaluation.agreement import (
    agreement,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    numeric_agreement,
    percent_agreement,
    ratings_per_item,
)
from dissensus.evaluation.calibration import (
    ReliabilityCurve,
    expected_calibration_error,
    log_loss,
    reliability_curve,
)
from dissensus.evaluation.hard import (
    accuracy,
    balanced_accuracy,
    confusion_matrix,
    expected_accuracy,
    hard_scores,
    macro_f1,
    micro_f1,
)
from dissensus.evaluation.hiding import hide_annotators
from dissensus.evaluation.intervals import Estimate, bootstrap, bootstrap_sums
from dissensus.evaluation.pairs import Pairs, cohen_kappas, concordances
from dissensus.evaluation.perspectivist import absolute_distance, error_rate
from dissensus.evaluation.significance import Difference, paired_bootstrap
from dissensus.evaluation.soft import (
    brier,
    cross_entropy,
    entropy,
    entropy_correlation,
    inverse_kl_divergence,
    jensen_shannon,
    kl_divergence,
    manhattan,
    soft_scores,
    total_variation,
    wasserstein,
)
from dissensus.evaluation.spans import span_agreement, span_scores

__all__ = [
    "Difference", "Estimate", "Pairs", "ReliabilityCurve", "absolute_distance", "accuracy",
    "agreement", "balanced_accuracy", "bootstrap", "bootstrap_sums", "brier", "cohen_kappas",
    "concordances",
    "confusion_matrix", "cross_entropy", "entropy", "entropy_correlation", "error_rate", "expected_accuracy",
    "expected_calibration_error", "fleiss_kappa", "gwet_ac1", "hard_scores", "hide_annotators",
    "inverse_kl_divergence", "jensen_shannon", "kl_divergence", "krippendorff_alpha", "log_loss", "macro_f1",
    "manhattan", "micro_f1", "numeric_agreement", "paired_bootstrap", "percent_agreement",
    "ratings_per_item", "reliability_curve", "soft_scores", "span_agreement", "span_scores",
    "total_variation", "wasserstein",
]  # fmt: skip
