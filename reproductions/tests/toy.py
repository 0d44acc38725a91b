"""A paper that takes no time: its file, and what stands for its module."""

from reproductions.verdict import assess, paired

FILE = """
title = "A <paper>"
cite = "Somebody 2020"
[table1]
title = "Squares"
seeds = 3
data.one = { number = 1 }
data.two = { number = 2 }
conditions."plain" = {}
conditions."twice" = { factor = 2 }
conditions."broken" = { fails = true }
conditions."gone" = {}
metrics.square = { label = "x²", digits = 1 }
metrics.seed = { label = "seed" }
quick = { seeds = 1, data = ["one"], offset = 100 }
published.one."plain" = { square = [1.5, 0.5] }
published.two."plain" = { square = 4 }
[[table1.without]]
condition = "gone"
why = "the data are lost."
[[table1.differs]]
data = "two"
condition = "twice"
why = "Twice is thrice here."
"""


class Module:
    """Stands for a paper's module."""

    def __init__(self):
        self.calls = []

    def table1(self, cell, device):
        self.calls.append((cell.data, cell.condition, cell.seeds))
        if cell.keywords.get("fails"):
            raise ValueError("no such thing")
        value = cell.keywords["number"] ** 2 * cell.keywords.get("factor", 1) + cell.keywords.get("offset", 0)
        return {"square": [value + seed for seed in cell.seeds], "seed": [float(seed) for seed in cell.seeds]}

    @staticmethod
    def claims(get):
        first, second = get("table1", "one", "twice", "square"), get("table1", "one", "plain", "square")
        return [assess("twice is more", {"one": paired(first, second)} if first and second else {})]
