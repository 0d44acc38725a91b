"""Who gave which label to what: the table, its names, files, data sets and simulation."""
