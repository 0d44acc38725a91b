"""Models of annotators and truth: the contract, the EM driver, families, and one file per method.

>>> from dissensus import clusterings, methods
>>> methods["glad"].__name__, methods.entry("glad").cite, "fmm" in clusterings
('GLAD', 'Whitehill et al. 2009', True)
"""
