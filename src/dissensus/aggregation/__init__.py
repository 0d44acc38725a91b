"""Label aggregation: annotations in, a posterior over classes out. One method per file; importing one registers it."""

from dissensus.aggregation.dawid_skene import DawidSkene
from dissensus.aggregation.majority_vote import MajorityVote

__all__ = ["DawidSkene", "MajorityVote"]
