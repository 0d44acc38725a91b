"""Label aggregation: annotations in, a posterior over classes out. One method per file; importing one registers it."""

from dissensus.aggregation.dawid_skene import DawidSkene
from dissensus.aggregation.glad import GLAD
from dissensus.aggregation.hierarchical_dawid_skene import HierarchicalDawidSkene
from dissensus.aggregation.mace import MACE
from dissensus.aggregation.majority_vote import MajorityVote
from dissensus.aggregation.one_coin import OneCoin
from dissensus.aggregation.wawa import Wawa
from dissensus.aggregation.zero_based_skill import ZeroBasedSkill

__all__ = ["GLAD", "MACE", "DawidSkene", "HierarchicalDawidSkene", "MajorityVote", "OneCoin", "Wawa", "ZeroBasedSkill"]
