"""Answer questions about tables and fitted models: one file per question."""
