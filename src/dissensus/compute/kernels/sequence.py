"""Forward-backward and Viterbi over sequences, fused with the sums of an E step.

A hidden Markov chain z_1 … z_T whose items have labels: `logs` (U, S) holds log P(label | state) of every distinct cell
(annotator, its previous label, label), `cell` (N,) the cell of each row. One pass over a sequence computes the
emissions, goes forwards and backwards, and adds the posterior to the counts of cells, transitions and first classes;
buffers are as long as the longest sequence. Illegal transitions have probability 0.

Gold classes may contradict the legal transitions: there the chain starts again.
"""

import numpy as np

from dissensus.common.jit import lazy_jit

MIN_LOG_EMISSION = -460.0  # relative to an item's largest: products with transitions stay above 1e-308


@lazy_jit
def log_emissions(i, item_ptr, cell, weight, logs, gold, means, out):
    """Write log P(labels of item i | state) less its maximum to `out` (S,), −∞ if gold excludes it; return that."""
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
    """Run forward-backward over all sequences; return the log evidence.

    `order` (I,) are items in reading order, `ptr` (S+1,) cuts them into sequences. Everything at item i is raised to
    `exponent[power[i]]`; `first` (P, S) and `step` (P, S, S) are raised before. State s is tag `means[s]`; a sequence
    may end with states whose `last` (S,) is 1. `shift` (K,) of tags is added to log emissions.
    With `tags` (I,), which is a legal path, `span_probability` gets at the first item of each of its spans the
    probability of the whole span; `inside` (K,) is the tag that continues a span after tag k, −1 for a tag outside.
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
                if total <= 0.0:  # a gold class that no sequence may begin with
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
            elif not begins[end]:  # and no tag continues it
                p, after = power[order[begin + end]], 0.0
                for k in range(K):
                    if k != inside[tag]:
                        after += step[p, now, k] * emission[end, k] * backward[end, k] / scale[end]
                value *= after
            span_probability[order[begin + t]] = value
    return evidence


@lazy_jit
def viterbi(order, ptr, item_ptr, cell, weight, logs, gold, means, log_first, log_step, log_last, tags):
    """Write the most probable legal path of every sequence to `tags` (I,)."""
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
            if top == -np.inf:  # possible with gold classes only
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
