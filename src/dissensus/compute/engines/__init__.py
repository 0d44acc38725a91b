"""Where an EM pass runs: `engine="local" | "disk" | "torch" | "spark"`, of methods that go "per item, then add counts".

A model is written once. It states its pass as a `base.Pass`: parameters come in, a kernel walks items and adds to
counts, the counts come out, and perhaps a posterior per item. A pass never holds annotations; an engine (`base.Engine`)
holds them and nothing else, and decides which block of items is walked where:

- `local`: arrays in memory; a block is a range of items, one for each thread, each with its own counts.
- `disk`: files of codes sorted by item, made once from Parquet (`coding`); a block is a few million rows, mapped into
  memory for as long as the same kernels walk them. The posterior is a file. After every pass the state is saved.
- `torch`: tensors on a GPU (or the CPU); the kernels are those of `kernels.on_torch`, over as many rows at a time as
  leave room for what they make of them.
- `spark`: arrays in a cluster, made there (`scatter`); a block is what a task walks: it takes the parameters of its
  annotators out of broadcasts, and sums are added as a tree. The posterior stays in the cluster.

Only parameters go to where the annotations are, only sums come back, and sums add with `+`. What is asked before the
first pass (votes, label counts) is asked by passes too, so that nothing needs the whole table in one place. One
exception: GLAD has a parameter per item, and all of them are in the memory of the driver.

All engines give the same answer. Sums and probabilities are in double precision everywhere, so engines differ by the
order of additions only, too little to change when a fit stops; a test holds them to it.

An engine with options is made by its class: `DawidSkene(engine=Disk(folder="work", memory_gb=2))`,
`DawidSkene(engine=Torch(device="cuda:1"))`, `DawidSkene(engine=Spark(partitions=400))`.

>>> from dissensus import methods
>>> from dissensus.compute.engines import Disk, Spark, Torch
>>> [methods["dawid-skene"](engine=one).engine is one for one in (Torch(device="cpu"), Disk(), Spark())]
[True, True, True]
"""

from dissensus.compute.engines.options import (
    ENGINES,
    Disk,
    EngineChoice,
    Spark,
    Torch,
    beside,
    in_memory,
    name_of,
    options_of,
)

__all__ = ["ENGINES", "Disk", "EngineChoice", "Spark", "Torch", "beside", "in_memory", "name_of", "options_of"]
