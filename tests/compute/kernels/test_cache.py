"""Compiled code is kept on disk: a second process does not compile again."""

import json
import os
import subprocess
import sys

FIT = """
import json, numpy as np, dissensus as dz
from dissensus.compute.kernels import confusion as c
from dissensus.table import kernels as table
for K in (3, 5):
    made = dz.Annotations.from_arrays(*np.random.default_rng(0).integers(0, K, (3, 2**17)))  # less is sorted by NumPy
    dz.methods["dawid-skene"]().fit(made).predict_proba(made)
walks = [c.compile_pass(K, source, c.FULL, False) for K in (3, 5) for source in (c.LIKELIHOOD, c.VOTES)]
kernels = [*walks, c.load_cells, c.collect_counts, table.sort_rows]
print(json.dumps([[sum(k.stats.cache_hits.values()), sum(k.stats.cache_misses.values())] for k in kernels]))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    counts = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        counts.append(json.loads(done.stdout))
    assert all(misses > 0 and hits == 0 for hits, misses in counts[0])
    assert all(misses == 0 and hits > 0 for hits, misses in counts[1])
