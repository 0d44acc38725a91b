"""Bootstrap over items: sums of statistics per item under many resamples.

A resample draws I of the I items with replacement. Items are processed in blocks of 256: the number of draws per block
is multinomial and drawn by NumPy, and each item within a block is drawn by one byte of a random word. The counts of a
block for 64 resamples therefore fit into the first-level cache, and adding the statistics of an item to 64 sums is one
vector operation. The draws are those of the ordinary bootstrap, not a Poisson approximation.
"""

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.compute.kernels.items import scramble_integer

BLOCK_ITEMS = 256  # number of items per block, so that one byte indexes an item
RESAMPLE_LANES = 64  # number of resamples that are processed together


@lazy_jit
def add_sums(ptr, column, value, drawn, state, sums):
    """Add to `sums` (S, RESAMPLE_LANES) the resampled sums of sparse statistics.

    Item i has the value `value[j]` in column `column[j]`, for j in ptr[i] … ptr[i+1] − 1. `drawn` (RESAMPLE_LANES,
    blocks) is the number of draws in each block. `state` (RESAMPLE_LANES,) uint64 seeds one SplitMix64 stream per
    resample (Steele, Lea & Flood 2014).
    """
    n_items = ptr.size - 1
    # The number of draws of each item of the block is practically never above 255.
    times = np.zeros((BLOCK_ITEMS, RESAMPLE_LANES), np.uint8)
    weight = np.empty(RESAMPLE_LANES)
    for block in range(drawn.shape[1]):
        first = block * BLOCK_ITEMS
        size = min(BLOCK_ITEMS, n_items - first)
        times[:] = 0
        for lane in range(drawn.shape[0]):
            left = drawn[lane, block]
            seed = state[lane]
            while left > 0:
                word = scramble_integer(seed)
                seed += np.uint64(0x9E3779B97F4A7C15)
                for _ in range(8):
                    item = np.int64(word & np.uint64(255))
                    word >>= np.uint64(8)
                    if item < size and left > 0:  # otherwise the byte is beyond the end of the last block
                        times[item, lane] += np.uint8(1)
                        left -= 1
            state[lane] = seed
        for i in range(size):
            start, stop = ptr[first + i], ptr[first + i + 1]
            if start < stop:
                for lane in range(RESAMPLE_LANES):
                    weight[lane] = times[i, lane]
                for j in range(start, stop):
                    amount = value[j]
                    row = sums[column[j]]
                    for lane in range(RESAMPLE_LANES):
                        row[lane] += amount * weight[lane]
