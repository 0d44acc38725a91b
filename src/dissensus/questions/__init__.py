"""Questions about tables and fitted models; each file answers one question."""
