"""Models of annotators and truth: the contract of a method, the EM driver, families of methods, and the methods.

>>> from dissensus import clusterings, methods
>>> methods["glad"].__name__, methods.entry("glad").cite, "fmm" in clusterings
('GLAD', 'Whitehill et al. 2009', True)
"""
