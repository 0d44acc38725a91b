"""Label aggregation: annotations in, a posterior over classes out. One method per file; importing one registers it."""

from dissensus.aggregation.community_bcc import CommunityBCC
from dissensus.aggregation.dawid_skene import DawidSkene
from dissensus.aggregation.glad import GLAD
from dissensus.aggregation.hierarchical_dawid_skene import HierarchicalDawidSkene
from dissensus.aggregation.kos import KOS
from dissensus.aggregation.m_msr import MMSR
from dissensus.aggregation.mace import MACE
from dissensus.aggregation.majority_vote import MajorityVote
from dissensus.aggregation.metal import MeTaL
from dissensus.aggregation.mmce import MMCE
from dissensus.aggregation.one_coin import OneCoin
from dissensus.aggregation.snorkel import Snorkel
from dissensus.aggregation.wawa import Wawa
from dissensus.aggregation.zero_based_skill import ZeroBasedSkill

__all__ = [
    "GLAD",
    "KOS",
    "MACE",
    "MMCE",
    "MMSR",
    "CommunityBCC",
    "DawidSkene",
    "HierarchicalDawidSkene",
    "MajorityVote",
    "MeTaL",
    "OneCoin",
    "Snorkel",
    "Wawa",
    "ZeroBasedSkill",
]
