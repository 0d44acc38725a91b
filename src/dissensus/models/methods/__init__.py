"""Label aggregation: annotations in, a posterior over classes out. One method per file; importing one registers it."""

from dissensus.models.methods.community_bcc import CommunityBCC
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.methods.glad import GLAD
from dissensus.models.methods.hierarchical_dawid_skene import HierarchicalDawidSkene
from dissensus.models.methods.kos import KOS
from dissensus.models.methods.m_msr import MMSR
from dissensus.models.methods.mace import MACE
from dissensus.models.methods.majority_vote import MajorityVote
from dissensus.models.methods.metal import MeTaL
from dissensus.models.methods.mmce import MMCE
from dissensus.models.methods.one_coin import OneCoin
from dissensus.models.methods.snorkel import Snorkel
from dissensus.models.methods.wawa import Wawa
from dissensus.models.methods.zero_based_skill import ZeroBasedSkill

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
