"""Objectives: one file each, entered in the registry by importing it."""

from dissensus.learning.objectives.base import Objective, objectives

__all__ = ["Objective", "objectives"]
