"""Forward-backward and Viterbi algorithms over sequences, with the sums of an E step.

The items of a sequence are a hidden Markov chain z_1 … z_T with labels. `logs` (U, S) contains log P(label | state) of
each distinct cell (annotator, previous label, label), and `cell` (N,) contains the cell of each row. One pass over a
sequence computes the emissions, runs forward-backward, and adds the posterior to the counts of cells, transitions and
first classes. Buffers are as long as the longest sequence. Illegal transitions have probability 0.

If gold classes contradict the legal transitions, the chain starts again at that item.
"""

import numpy as np

from dissensus.common.jit import lazy_jit

MIN_LOG_EMISSION = -460.0  # minimum log emission relative to the largest one, so that products do not underflow


@lazy_jit
def log_emissions(i, item_ptr, cell, weight, logs, gold, means, out):
    """Write log P(labels of item i | state) minus its maximum to `out` (S,); return the maximum."""
    K = out.size
    for k in range(K):
        out[k] = 0.0
    for row in range(item_ptr[i], item_ptr[i + 1]):
        w = weight[row] if weight.size else 1.0
        for k in range(K):
            out[k] += w * logs[cell[row], k]
    known = gold[i] if gold.size else -1
    top = -np.inf
    for k in range(K):
        if known >= 0 and means[k] != known:
            out[k] = -np.inf
        top = max(top, out[k])
    for k in range(K):
        if out[k] > -np.inf:
            out[k] = max(out[k] - top, MIN_LOG_EMISSION)
    return top


@lazy_jit
def forward_backward(
    order, ptr, item_ptr, cell, weight, logs, gold, means, power, exponent, first, step, last, shift,
    cell_counts, first_counts, step_counts, posterior, inside, tags, span_probability,
):  # fmt: skip
    """Run forward-backward over all sequences, and return the log evidence.

    `order` (I,) lists the items in reading order, and `ptr` (S+1,) divides them into sequences. Emissions of item i are
    raised to `exponent[power[i]]`; `first` (P, S) and `step` (P, S, S) have already been raised to each power. State s
    is the tag `means[s]`, and a sequence may end in states whose `last` (S,) is 1. `shift` (K,) is added to the log
    emissions of tags. If `tags` (I,), a legal path, is not empty, the probability of each of its spans is written to
    `span_probability` at the span's first item; `inside` (K,) is the tag that continues a span after tag k, or −1.

    The loop is one function, because its steps share buffers, and separate functions would read each sequence again.
    """
    K = first.shape[1]
    longest = 0
    for s in range(ptr.size - 1):
        longest = max(longest, ptr[s + 1] - ptr[s])
    emission, forward, backward = np.empty((longest, K)), np.empty((longest, K)), np.empty((longest, K))
    state, scale, begins = np.empty(K), np.empty(longest), np.empty(longest, np.bool_)
    evidence = 0.0
    for s in range(ptr.size - 1):
        begin, n = ptr[s], ptr[s + 1] - ptr[s]
        for t in range(n):
            i = order[begin + t]
            p = power[i]
            evidence += log_emissions(i, item_ptr, cell, weight, logs, gold, means, emission[t])
            for k in range(K):
                emission[t, k] = np.exp(exponent[p] * emission[t, k] + shift[means[k]])
            begins[t] = t == 0
            total = 0.0
            if t > 0:
                for k in range(K):
                    value = 0.0
                    for j in range(K):
                        value += forward[t - 1, j] * step[p, j, k]
                    forward[t, k] = value * emission[t, k]
                    total += forward[t, k]
                begins[t] = total <= 0.0
            if begins[t]:
                total = 0.0
                for k in range(K):
                    forward[t, k] = first[p, k] * emission[t, k]
                    total += forward[t, k]
                if total <= 0.0:  # the gold class is not a legal first class
                    for k in range(K):
                        forward[t, k] = emission[t, k]
                        total += forward[t, k]
            for k in range(K):
                forward[t, k] /= total
            scale[t] = total
            evidence += np.log(total)
        ends = 0.0
        for k in range(K):
            ends += forward[n - 1, k] * last[k]
        evidence += np.log(ends)
        for t in range(n - 1, -1, -1):
            i = order[begin + t]
            if t == n - 1:
                for k in range(K):
                    backward[t, k] = last[k] / ends
            elif begins[t + 1]:
                for k in range(K):
                    backward[t, k] = 1.0
            else:
                p = power[order[begin + t + 1]]
                for j in range(K):
                    backward[t, j] = 0.0
                for k in range(K):
                    ahead = emission[t + 1, k] * backward[t + 1, k] / scale[t + 1]
                    for j in range(K):
                        value = step[p, j, k] * ahead
                        backward[t, j] += value
                        step_counts[j, k] += forward[t, j] * value
            posterior[i] = 0.0
            for k in range(K):
                state[k] = forward[t, k] * backward[t, k]
                posterior[i, means[k]] += state[k]
                if begins[t]:
                    first_counts[k] += state[k]
            for row in range(item_ptr[i], item_ptr[i + 1]):
                w = weight[row] if weight.size else 1.0
                for k in range(K):
                    cell_counts[cell[row], k] += w * state[k]
        for t in range(n if tags.size else 0):
            tag = tags[order[begin + t]]
            if inside[tag] < 0 or (t > 0 and inside[tag] == tag):
                continue
            value, end = forward[t, tag], t + 1
            while end < n and tags[order[begin + end]] == inside[tag]:
                now, p = tags[order[begin + end - 1]], power[order[begin + end]]
                value *= step[p, now, inside[tag]] * emission[end, inside[tag]] / scale[end]
                end += 1
            now = tags[order[begin + end - 1]]
            if end == n:
                value *= last[now] / ends
            elif not begins[end]:  # the next tag does not continue the span
                p, after = power[order[begin + end]], 0.0
                for k in range(K):
                    if k != inside[tag]:
                        after += step[p, now, k] * emission[end, k] * backward[end, k] / scale[end]
                value *= after
            span_probability[order[begin + t]] = value
    return evidence


@lazy_jit
def viterbi(order, ptr, item_ptr, cell, weight, logs, gold, means, log_first, log_step, log_last, tags):
    """Write the most probable legal path of each sequence to `tags` (I,)."""
    K = log_first.size
    longest = 0
    for s in range(ptr.size - 1):
        longest = max(longest, ptr[s + 1] - ptr[s])
    best, before, emission = np.empty((longest, K)), np.empty((longest, K), np.int64), np.empty(K)
    for s in range(ptr.size - 1):
        begin, n = ptr[s], ptr[s + 1] - ptr[s]
        for t in range(n):
            log_emissions(order[begin + t], item_ptr, cell, weight, logs, gold, means, emission)
            top = -np.inf
            for k in range(K):
                best[t, k], before[t, k] = -np.inf, -1
                if t == 0:
                    best[t, k] = log_first[k]
                else:
                    for j in range(K):
                        value = best[t - 1, j] + log_step[j, k]
                        if value > best[t, k]:
                            best[t, k], before[t, k] = value, j
                best[t, k] += emission[k]
                top = max(top, best[t, k])
            if top == -np.inf:  # only gold classes can exclude all states
                for k in range(K):
                    best[t, k], before[t, k] = emission[k], -1
                    top = max(top, emission[k])
            for k in range(K):
                best[t, k] -= top
        for k in range(K):
            best[n - 1, k] += log_last[k]
        after = -1
        for t in range(n - 1, -1, -1):
            tag = before[t + 1, after] if after >= 0 else -1
            if tag < 0:
                tag = best[t].argmax()
            tags[order[begin + t]] = means[tag]
            after = tag
