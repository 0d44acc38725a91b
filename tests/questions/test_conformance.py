"""Every declared question keeps the rules of `dissensus.testing.questions`."""

import pytest

from dissensus.questions.base import questions
from dissensus.testing.questions import check_question

OPTIONS = {
    "agreement": {"resamples": 20, "pairs": False},
    "compare": {"splits": 1, "resamples": 20},
    "redundancy": {"seeds": 1},
}  # so that the suite takes seconds


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DissensusWarning")
@pytest.mark.parametrize("name", list(questions))
def test_a_question_keeps_the_rules(name):
    check_question(questions[name], **OPTIONS.get(name, {}))
