"""Learning from annotations: any encoder with any objective, one trainer."""
