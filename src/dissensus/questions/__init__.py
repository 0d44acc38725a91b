"""What people ask of a table and of fitted models: one file per question."""
