"""Sentences that only the command line prints."""

from __future__ import annotations

from typing import ClassVar

from dissensus.common.formatting import Count, Share
from dissensus.messages import Message


class AgreementCoefficients(Message):
    """The coefficients of agreement in one line."""

    template = "Coefficients of agreement, with 95 % intervals: {joined}."
    coefficients: tuple[str, ...]
    example: ClassVar = {"coefficients": ("Krippendorff's α 0.81 (0.79 to 0.83)", "Fleiss' κ 0.81 (0.79 to 0.83)")}
    joined = property(lambda self: "; ".join(self.coefficients) or "undefined, as there is only one class")


class DemoAccuracy(Message):
    """The accuracy of the demonstration compared with the majority vote."""

    template = (
        "{accuracy} of these {items:item} have the right label; the majority vote of the same labels is right on only "
        "{majority_vote}."
    )
    items: Count
    accuracy: Share
    majority_vote: Share
