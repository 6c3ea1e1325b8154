"""Inserting items into a tree one by one, compiled for tables of discrete columns.

The algorithm and its reasons are those of `bhclust.growing`, which is also the reference; this
file is its copy for `Bernoulli` and `Categorical`, whose clusters are counts of categories.

A row of ``links`` is a node: parent, first child, next and previous sibling, number of children,
row of the table (-1 inside). A row of ``numbers`` is its weight, ``log f``, value and the sum of
its children's values. A row of ``counts`` holds the count of each category, then of each column.
"""

from __future__ import annotations

import math

import numpy as np

from bhclust._kernels.compile import compiled

PARENT, FIRST, NEXT, PREVIOUS, KIDS, ROW = range(6)
WEIGHT, LOG_F, VALUE, BELOW = range(4)
ROOT, NEXT_ID, N_FREE, N_ROTATIONS, N_GRAFTS, N_COLLAPSES = range(6)
JOIN, ABSORB = 0, 1
GONE = -2

# Where a node is one cluster with these log odds, what is below has no say in the evidence.
CERTAIN = 30.0

_DIRICHLET_PROCESS, _CONSTANT = 0, 1
_FEW_CHILDREN = 8


@compiled
def log_one(code, parameter, weight, n_children):
    """Return the log weight of one cluster; the codes are those of `nodes.mixing_code`."""
    if code == _DIRICHLET_PROCESS:
        return parameter + math.lgamma(weight)
    if code == _CONSTANT:
        return math.log(parameter)
    return math.log(-math.expm1((n_children - 1) * math.log1p(-parameter)))


@compiled
def log_split(code, parameter, n_children):
    """Return the log weight of splitting into the children."""
    if code == _DIRICHLET_PROCESS:
        return 0.0
    if code == _CONSTANT:
        return math.log1p(-parameter)
    return (n_children - 1) * math.log1p(-parameter)


@compiled
def mixed(a, b):
    """Return ``log(e^a + e^b)``."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@compiled
def _gain(counts, node, codes, prior, totals, scale):
    """Return ``log f(x | D)`` of an item, the cluster's counts taken ``scale`` times."""
    start = prior[0]
    n_stats = len(start)
    out, product = 0.0, 1.0
    for j in range(len(codes)):
        s = codes[j]
        if s >= 0:
            seen = scale * counts[node, n_stats + j]
            product *= (start[s] + scale * counts[node, s]) / (totals[j] + seen)
        if j & 7 == 7:
            out += math.log(product)
            product = 1.0
    return out + math.log(product)


@compiled
def _log_f(counts, node, prior, totals):
    """Return ``log f`` of a cluster."""
    start, table = prior
    n_stats = len(start)
    out = 0.0
    for s in range(n_stats):
        out += _log_rising(table, s, start[s], counts[node, s])
    for j in range(len(totals)):
        out -= _log_rising(table, n_stats + j, totals[j], counts[node, n_stats + j])
    return out


@compiled
def _log_rising(table, row, start, count):
    """Return ``lgamma(start + count) - lgamma(start)``; a table has it for small whole counts."""
    place = int(count)
    if place < table.shape[1] and place == count:
        return table[row, place]
    return math.lgamma(start + count) - math.lgamma(start)


@compiled
def _odds(links, numbers, node, code, parameter):
    kids = links[node, KIDS]
    if kids == 0:
        return np.inf
    one = log_one(code, parameter, numbers[node, WEIGHT], kids) + numbers[node, LOG_F]
    return one - log_split(code, parameter, kids) - numbers[node, BELOW]


@compiled
def _revalue(links, numbers, node, code, parameter):
    """Compute a node's value from its children's."""
    kids = links[node, KIDS]
    below = 0.0
    child = links[node, FIRST]
    while child >= 0:
        below += numbers[child, VALUE]
        child = links[child, NEXT]
    numbers[node, BELOW] = below
    one = log_one(code, parameter, numbers[node, WEIGHT], kids) + numbers[node, LOG_F]
    numbers[node, VALUE] = mixed(one, log_split(code, parameter, kids) + below)


@compiled
def _pass_up(links, numbers, node, code, parameter, old):
    """Hand a changed value of a node up to the root; ``old`` is what it was."""
    above = links[node, PARENT]
    while above >= 0:
        before = numbers[above, VALUE]
        if links[above, KIDS] <= _FEW_CHILDREN:
            _revalue(links, numbers, above, code, parameter)
        else:  # a node of thousands of children is not summed again for one of them
            numbers[above, BELOW] += numbers[node, VALUE] - old
            kids = links[above, KIDS]
            one = log_one(code, parameter, numbers[above, WEIGHT], kids) + numbers[above, LOG_F]
            split = log_split(code, parameter, kids) + numbers[above, BELOW]
            numbers[above, VALUE] = mixed(one, split)
        old = before
        node, above = above, links[above, PARENT]


@compiled
def _allocate(links, counters, free):
    if counters[N_FREE] > 0:
        counters[N_FREE] -= 1
        node = free[counters[N_FREE]]
    else:
        node = counters[NEXT_ID]
        counters[NEXT_ID] += 1
    links[node] = -1
    links[node, KIDS] = 0
    return node


@compiled
def _release(links, counters, free, node):
    links[node, PARENT] = GONE
    free[counters[N_FREE]] = node
    counters[N_FREE] += 1


@compiled
def _attach(links, node, above):
    """Make a node the first child of another."""
    head = links[above, FIRST]
    links[node, PARENT] = above
    links[node, NEXT] = head
    links[node, PREVIOUS] = -1
    if head >= 0:
        links[head, PREVIOUS] = node
    links[above, FIRST] = node
    links[above, KIDS] += 1


@compiled
def _detach(links, node):
    above, before, after = links[node, PARENT], links[node, PREVIOUS], links[node, NEXT]
    if before >= 0:
        links[before, NEXT] = after
    else:
        links[above, FIRST] = after
    if after >= 0:
        links[after, PREVIOUS] = before
    links[above, KIDS] -= 1
    links[node, PARENT] = -1


@compiled
def _replace(links, counters, node, by):
    """Put another node in the place of one."""
    above = links[node, PARENT]
    if above < 0:
        counters[ROOT] = by
        links[by, PARENT] = -1
        links[by, NEXT] = links[by, PREVIOUS] = -1
        return
    _detach(links, node)
    _attach(links, by, above)


@compiled
def _search(links, numbers, counts, codes, prior, totals, code, parameter, counters, seen):
    """Score the clusters at the top of the tree, the most promising first.

    Return how many nodes were seen; ``seen`` gets their ids, scores, gains, and whether opened.
    """
    ids, scores, gains, opened = seen
    root = counters[ROOT]
    ids[0] = root
    gains[0] = _gain(counts, root, codes, prior, totals, 1.0)
    scores[0] = math.log(numbers[root, WEIGHT]) + gains[0]
    opened[0] = False
    n_seen = 1
    most = len(ids)
    while True:
        best = -1
        for k in range(n_seen):
            if opened[k] or (best >= 0 and scores[k] <= scores[best]):
                continue
            if links[ids[k], KIDS] > 0 and _odds(links, numbers, ids[k], code, parameter) < 0:
                best = k
        if best < 0:
            return n_seen
        if n_seen == most:
            return n_seen
        opened[best] = True
        child = links[ids[best], FIRST]
        while child >= 0 and n_seen < most:
            ids[n_seen] = child
            gains[n_seen] = _gain(counts, child, codes, prior, totals, 1.0)
            scores[n_seen] = math.log(numbers[child, WEIGHT]) + gains[n_seen]
            opened[n_seen] = False
            n_seen += 1
            child = links[child, NEXT]


@compiled
def _descend(links, numbers, counts, codes, prior, totals, node, most):
    """Return the child that is most like the item, all taken at the weight of the lightest."""
    lightest = np.inf
    child, looked = links[node, FIRST], 0
    while child >= 0 and looked < most:
        lightest = min(lightest, numbers[child, WEIGHT])
        child = links[child, NEXT]
        looked += 1
    best, highest = -1, -np.inf
    child, looked = links[node, FIRST], 0
    while child >= 0 and looked < most:
        scale = lightest / numbers[child, WEIGHT]
        gain = _gain(counts, child, codes, prior, totals, scale)
        if gain > highest:
            best, highest = child, gain
        child = links[child, NEXT]
        looked += 1
    return best


@compiled
def _place(links, numbers, path, gain, length, value_x, rose, code, parameter):
    """Return where on the path the item raises the evidence most, and how it goes there."""
    best, stop, operation = 0.0, -1, JOIN
    for place in range(length - 1, -1, -1):
        u = path[place]
        kids = links[u, KIDS]
        weight = numbers[u, WEIGHT] + 1
        log_f = numbers[u, LOG_F] + gain[place]
        apart = log_split(code, parameter, 2) + numbers[u, VALUE] + value_x
        join = mixed(log_one(code, parameter, weight, 2) + log_f, apart)
        if place == length - 1:
            best, stop, operation = join, place, JOIN
            if not (rose and kids > 0):
                continue
            below = -np.inf
            within = -np.inf
        else:
            inner = numbers[u, BELOW] - numbers[path[place + 1], VALUE] + best
            below = log_split(code, parameter, kids) + inner
            within = mixed(log_one(code, parameter, weight, kids) + log_f, below)
        if not rose:
            # One term is the same for both ways: the other decides, and never saturates.
            if apart > below:
                best, stop = join, place
            else:
                best = within
            continue
        absorb = -np.inf
        if kids > 0:
            one = log_one(code, parameter, weight, kids + 1) + log_f
            split = log_split(code, parameter, kids + 1) + numbers[u, BELOW] + value_x
            if split > one:  # inside a cluster, a flat node could never be taken apart again
                absorb = mixed(one, split)
        if absorb > max(join, within):
            best, stop, operation = absorb, place, ABSORB
        elif join > within + 1e-9 or (join > within - 1e-9 and apart > below):
            best, stop, operation = join, place, JOIN
        else:
            best = within
    return stop, operation


@compiled
def _rotate(links, numbers, counts, prior, totals, start, code, parameter, counters):
    """Exchange a node's child with its aunt where that raises the evidence, up to the root."""
    p = start
    scratch = len(counts) - 1
    while links[p, PARENT] >= 0:
        g = links[p, PARENT]
        if (
            links[p, KIDS] != 2
            or links[g, KIDS] != 2
            or _odds(links, numbers, g, code, parameter) > CERTAIN
        ):
            p = g
            continue
        aunt = links[g, FIRST]
        if aunt == p:
            aunt = links[p, NEXT]
        first = links[p, FIRST]
        second = links[first, NEXT]
        now = numbers[p, VALUE] + numbers[aunt, VALUE]
        best, leaving, value, log_f = now + 1e-8, -1, 0.0, 0.0
        for turn in range(2):
            stays, leaves = (second, first) if turn == 0 else (first, second)
            for s in range(counts.shape[1]):
                counts[scratch, s] = counts[aunt, s] + counts[stays, s]
            new_log_f = _log_f(counts, scratch, prior, totals)
            weight = numbers[aunt, WEIGHT] + numbers[stays, WEIGHT]
            one = log_one(code, parameter, weight, 2) + new_log_f
            split = log_split(code, parameter, 2) + numbers[aunt, VALUE] + numbers[stays, VALUE]
            new_value = mixed(one, split)
            if new_value + numbers[leaves, VALUE] > best:
                best = new_value + numbers[leaves, VALUE]
                leaving, value, log_f = leaves, new_value, new_log_f
        if leaving >= 0:
            stays = second if leaving == first else first
            for s in range(counts.shape[1]):
                counts[p, s] = counts[aunt, s] + counts[stays, s]
            numbers[p, WEIGHT] = numbers[aunt, WEIGHT] + numbers[stays, WEIGHT]
            numbers[p, LOG_F] = log_f
            numbers[p, VALUE] = value
            numbers[p, BELOW] = numbers[aunt, VALUE] + numbers[stays, VALUE]
            _detach(links, leaving)
            _detach(links, aunt)
            _attach(links, aunt, p)
            _attach(links, leaving, g)
            old = numbers[g, VALUE]
            _revalue(links, numbers, g, code, parameter)
            _pass_up(links, numbers, g, code, parameter, old)
            counters[N_ROTATIONS] += 1
        p = g


@compiled
def _collapse(links, numbers, start, code, parameter, counters, free):
    """Dissolve nodes on the way up into their parents where that raises the evidence."""
    p = start
    while links[p, PARENT] >= 0:
        g = links[p, PARENT]
        kids = links[g, KIDS] - 1 + links[p, KIDS]
        if links[p, KIDS] > 0 and _odds(links, numbers, g, code, parameter) < 0:
            one = log_one(code, parameter, numbers[g, WEIGHT], kids) + numbers[g, LOG_F]
            below = numbers[g, BELOW] - numbers[p, VALUE] + numbers[p, BELOW]
            value = mixed(one, log_split(code, parameter, kids) + below)
            if value > numbers[g, VALUE] + 1e-9:
                _detach(links, p)
                child = links[p, FIRST]
                while child >= 0:
                    after = links[child, NEXT]
                    _attach(links, child, g)
                    child = after
                _release(links, counters, free, p)
                old = numbers[g, VALUE]
                numbers[g, BELOW] = below
                numbers[g, VALUE] = value
                _pass_up(links, numbers, g, code, parameter, old)
                counters[N_COLLAPSES] += 1
        p = g


@compiled
def _move(links, numbers, counts, prior, totals, t, target, code, parameter, counters,
          free, mark):  # fmt: skip
    """Prune t and graft it beside target; return the node that it has left, -1 if that is gone."""
    p = links[t, PARENT]
    _detach(links, t)
    left = p
    start = p
    if links[p, KIDS] == 1:
        rest = links[p, FIRST]
        _detach(links, rest)
        _replace(links, counters, p, rest)
        start = links[rest, PARENT]
        _release(links, counters, free, p)
        left = -1
    q = _allocate(links, counters, free)
    _replace(links, counters, target, q)
    links[target, NEXT] = links[target, PREVIOUS] = -1
    _attach(links, target, q)
    _attach(links, t, q)
    _shift(links, numbers, counts, prior, totals, t, start, q, code, parameter, mark)
    return left


@compiled
def _shift(links, numbers, counts, prior, totals, t, start, q, code, parameter, mark):
    """Bring counts and values up to date after t has moved from below ``start`` to below q."""
    u = start
    while u >= 0:
        mark[u] = True
        u = links[u, PARENT]
    width = counts.shape[1]
    target = links[t, NEXT]
    for s in range(width):
        counts[q, s] = counts[target, s] + counts[t, s]
    numbers[q, WEIGHT] = numbers[target, WEIGHT] + numbers[t, WEIGHT]
    numbers[q, LOG_F] = _log_f(counts, q, prior, totals)
    _revalue(links, numbers, q, code, parameter)
    u = links[q, PARENT]
    while u >= 0 and not mark[u]:
        for s in range(width):
            counts[u, s] += counts[t, s]
        numbers[u, WEIGHT] += numbers[t, WEIGHT]
        numbers[u, LOG_F] = _log_f(counts, u, prior, totals)
        _revalue(links, numbers, u, code, parameter)
        u = links[u, PARENT]
    common = u
    u = start
    while u >= 0 and u != common:
        for s in range(width):
            counts[u, s] -= counts[t, s]
        numbers[u, WEIGHT] -= numbers[t, WEIGHT]
        numbers[u, LOG_F] = _log_f(counts, u, prior, totals)
        _revalue(links, numbers, u, code, parameter)
        u = links[u, PARENT]
    u = common
    while u >= 0:
        _revalue(links, numbers, u, code, parameter)
        u = links[u, PARENT]
    u = start
    while u >= 0:
        mark[u] = False
        u = links[u, PARENT]


@compiled
def _graft(links, numbers, counts, prior, totals, leaf, n_seen, seen, code, parameter,
           counters, free, mark):  # fmt: skip
    """Try to move the cluster of a new leaf beside the most promising other clusters."""
    ids, scores, _, opened = seen
    t, u = leaf, links[leaf, PARENT]
    while u >= 0:
        if _odds(links, numbers, u, code, parameter) > 0:
            t = u
        u = links[u, PARENT]
    size = int(numbers[t, WEIGHT])
    if t == counters[ROOT] or size & (size - 1) != 0:
        return
    scratch = len(counts) - 1
    for _ in range(3):
        best = -1
        for k in range(n_seen):
            if not opened[k] and (best < 0 or scores[k] > scores[best]):
                best = k
        if best < 0:
            return
        opened[best] = True
        v = ids[best]
        if links[v, PARENT] == GONE or v == counters[ROOT] or _related(links, v, t):
            continue
        p = links[t, PARENT]
        if links[p, KIDS] == 2 and links[v, PARENT] == p:
            continue
        for s in range(counts.shape[1]):
            counts[scratch, s] = counts[v, s] + counts[t, s]
        weight = numbers[v, WEIGHT] + numbers[t, WEIGHT]
        one = log_one(code, parameter, weight, 2)
        one += _log_f(counts, scratch, prior, totals)
        split = log_split(code, parameter, 2) + numbers[v, VALUE] + numbers[t, VALUE]
        if one - split <= _odds(links, numbers, p, code, parameter):
            continue
        before = numbers[counters[ROOT], VALUE]
        sibling = links[p, FIRST] if links[p, FIRST] != t else links[t, NEXT]
        left = _move(links, numbers, counts, prior, totals, t, v, code, parameter,
                     counters, free, mark)  # fmt: skip
        if numbers[counters[ROOT], VALUE] > before + 1e-8:
            counters[N_GRAFTS] += 1
            return
        if left < 0:
            _move(links, numbers, counts, prior, totals, t, sibling, code, parameter,
                  counters, free, mark)  # fmt: skip
        else:
            _move_back(links, numbers, counts, prior, totals, t, left, code, parameter,
                       counters, free, mark)  # fmt: skip


@compiled
def _move_back(links, numbers, counts, prior, totals, t, home, code, parameter,
               counters, free, mark):  # fmt: skip
    """Make t a child of ``home`` again, beside which it has never been alone."""
    q = links[t, PARENT]
    _detach(links, t)
    rest = links[q, FIRST]
    _detach(links, rest)
    _replace(links, counters, q, rest)
    _release(links, counters, free, q)
    _attach(links, t, home)
    u = links[rest, PARENT]
    while u >= 0:
        mark[u] = True
        u = links[u, PARENT]
    u = home
    while u >= 0 and not mark[u]:
        _add_cluster(links, numbers, counts, prior, totals, u, t, 1.0, code, parameter)
        u = links[u, PARENT]
    common, u = u, links[rest, PARENT]
    while u >= 0 and u != common:
        _add_cluster(links, numbers, counts, prior, totals, u, t, -1.0, code, parameter)
        u = links[u, PARENT]
    while u >= 0:
        _revalue(links, numbers, u, code, parameter)
        u = links[u, PARENT]
    u = links[rest, PARENT]
    while u >= 0:
        mark[u] = False
        u = links[u, PARENT]


@compiled
def _add_cluster(links, numbers, counts, prior, totals, u, t, sign, code, parameter):
    for s in range(counts.shape[1]):
        counts[u, s] += sign * counts[t, s]
    numbers[u, WEIGHT] += sign * numbers[t, WEIGHT]
    numbers[u, LOG_F] = _log_f(counts, u, prior, totals)
    _revalue(links, numbers, u, code, parameter)


@compiled
def _related(links, a, b):
    """Say whether one of two nodes is above the other."""
    u = a
    while u >= 0:
        if u == b:
            return True
        u = links[u, PARENT]
    u = b
    while u >= 0:
        if u == a:
            return True
        u = links[u, PARENT]
    return False


@compiled
def insert_items(codes, first_row, links, numbers, counts, prior, totals, code,
                 parameter, rose, collapses, repairs, most_children, counters, free, mark, path,
                 gain, seen):  # fmt: skip
    """Insert rows of category numbers (-1 where missing) one after the other."""
    for i in range(len(codes)):
        leaf = _allocate(links, counters, free)
        links[leaf, ROW] = first_row + i
        counts[leaf] = 0.0
        value = _gain(counts, leaf, codes[i], prior, totals, 1.0)
        for j in range(codes.shape[1]):
            if codes[i, j] >= 0:
                counts[leaf, codes[i, j]] += 1.0
                counts[leaf, len(prior[0]) + j] += 1.0
        numbers[leaf, WEIGHT] = 1.0
        numbers[leaf, LOG_F] = value
        numbers[leaf, BELOW] = 0.0
        numbers[leaf, VALUE] = value + (parameter if code == _DIRICHLET_PROCESS else 0.0)
        if counters[ROOT] < 0:
            counters[ROOT] = leaf
            continue
        n_seen = _search(links, numbers, counts, codes[i], prior, totals, code, parameter,
                         counters, seen)  # fmt: skip
        length = _find_path(links, numbers, counts, codes[i], prior, totals, n_seen, seen, path,
                            gain, most_children)  # fmt: skip
        stop, operation = _place(links, numbers, path, gain, length, numbers[leaf, VALUE], rose,
                                 code, parameter)  # fmt: skip
        top = _put(links, numbers, counts, leaf, path, gain, stop, operation, code, parameter,
                   counters, free)  # fmt: skip
        if repairs:
            if collapses:
                _collapse(links, numbers, top, code, parameter, counters, free)
            _rotate(links, numbers, counts, prior, totals, links[leaf, PARENT], code,
                    parameter, counters)  # fmt: skip
            _graft(links, numbers, counts, prior, totals, leaf, n_seen, seen, code,
                   parameter, counters, free, mark)  # fmt: skip


@compiled
def _find_path(links, numbers, counts, codes, prior, totals, n_seen, seen, path, gain, most):
    """Fill the path from the root to a leaf, and the item's gain at each node of it."""
    ids, scores, gains, opened = seen
    best = -1
    for k in range(n_seen):
        if not opened[k] and (best < 0 or scores[k] > scores[best]):
            best = k
    length = 0
    u = ids[best]
    while u >= 0:
        path[length] = u
        length += 1
        u = links[u, PARENT]
    for k in range(length // 2):
        path[k], path[length - 1 - k] = path[length - 1 - k], path[k]
    place = length - 1
    for k in range(best, -1, -1):  # parents were seen before their children
        if place >= 0 and ids[k] == path[place]:
            gain[place] = gains[k]
            place -= 1
    u = path[length - 1]
    while links[u, KIDS] > 0:
        u = _descend(links, numbers, counts, codes, prior, totals, u, most)
        path[length] = u
        gain[length] = _gain(counts, u, codes, prior, totals, 1.0)
        length += 1
    return length


@compiled
def _put(links, numbers, counts, leaf, path, gain, stop, operation, code, parameter, counters,
         free):  # fmt: skip
    """Put a leaf into its place; return the node above it."""
    last = stop if operation == JOIN else stop + 1
    for place in range(last):
        u = path[place]
        for s in range(counts.shape[1]):
            counts[u, s] += counts[leaf, s]
        numbers[u, WEIGHT] += 1.0
        numbers[u, LOG_F] += gain[place]
    u = path[stop]
    if operation == JOIN:
        w = _allocate(links, counters, free)
        for s in range(counts.shape[1]):
            counts[w, s] = counts[u, s] + counts[leaf, s]
        numbers[w, WEIGHT] = numbers[u, WEIGHT] + 1.0
        numbers[w, LOG_F] = numbers[u, LOG_F] + gain[stop]
        _replace(links, counters, u, w)
        links[u, NEXT] = links[u, PREVIOUS] = -1
        _attach(links, u, w)
        _attach(links, leaf, w)
        old = numbers[u, VALUE]
        _revalue(links, numbers, w, code, parameter)
        _pass_up(links, numbers, w, code, parameter, old)
        return w
    _attach(links, leaf, u)
    old = numbers[u, VALUE]
    if links[u, KIDS] <= _FEW_CHILDREN:
        _revalue(links, numbers, u, code, parameter)
    else:
        kids = links[u, KIDS]
        numbers[u, BELOW] += numbers[leaf, VALUE]
        one = log_one(code, parameter, numbers[u, WEIGHT], kids) + numbers[u, LOG_F]
        numbers[u, VALUE] = mixed(one, log_split(code, parameter, kids) + numbers[u, BELOW])
    _pass_up(links, numbers, u, code, parameter, old)
    return u


@compiled
def parents_of(links, root, n_leaves, n_inner):
    """Return the parents of a tree: leaves by row, then inner nodes, children before parents."""
    parent = np.full(n_leaves + n_inner, -1, dtype=np.int32)
    number = np.full(len(links), -1, dtype=np.int64)
    following = n_leaves
    u = root
    while links[u, KIDS] > 0:
        u = links[u, FIRST]
    while True:
        if links[u, KIDS] == 0:
            number[u] = links[u, ROW]
        else:
            number[u] = following
            child = links[u, FIRST]
            while child >= 0:
                parent[number[child]] = following
                child = links[child, NEXT]
            following += 1
        if u == root:
            return parent
        if links[u, NEXT] >= 0:
            u = links[u, NEXT]
            while links[u, KIDS] > 0:
                u = links[u, FIRST]
        else:
            u = links[u, PARENT]
