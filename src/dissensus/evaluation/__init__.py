"""Metrics, agreement, calibration, confidence intervals and significance tests, as functions of arrays."""

from dissensus.evaluation.agreement import (
    agreement,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    numeric_agreement,
    percent_agreement,
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
from dissensus.evaluation.intervals import Difference, Estimate, bootstrap, bootstrap_sums, paired_bootstrap
from dissensus.evaluation.pairs import PairAgreement, cohen_kappas, concordances
from dissensus.evaluation.perspectivist import absolute_distance, error_rate, hide_annotators
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
    "Difference", "Estimate", "PairAgreement", "ReliabilityCurve", "absolute_distance", "accuracy",
    "agreement", "balanced_accuracy", "bootstrap", "bootstrap_sums", "brier", "cohen_kappas",
    "concordances",
    "confusion_matrix", "cross_entropy", "entropy", "entropy_correlation", "error_rate", "expected_accuracy",
    "expected_calibration_error", "fleiss_kappa", "gwet_ac1", "hard_scores", "hide_annotators",
    "inverse_kl_divergence", "jensen_shannon", "kl_divergence", "krippendorff_alpha", "log_loss", "macro_f1",
    "manhattan", "micro_f1", "numeric_agreement", "paired_bootstrap", "percent_agreement",
    "reliability_curve", "soft_scores", "span_agreement", "span_scores",
    "total_variation", "wasserstein",
]  # fmt: skip
