"""Where an EM pass runs. The kernels walk ranges of items; an engine decides which range runs where."""
