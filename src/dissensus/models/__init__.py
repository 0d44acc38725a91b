"""Models of annotators and truth: the contract, the EM driver, families, and one file per method."""
