"""The plain O(n³) greedy search in multiprecision arithmetic, from the papers' definitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from bhclust.mixing import Constant, DirichletProcess, Mixing
from bhclust.models import ClusterModel
from tests.oracles.exact import exact_f


@dataclass
class Subtree:
    """A tree of the reference: leaves, children, and exact quantities."""

    leaves: tuple[int, ...]
    children: list[Subtree]
    weight: Any
    f: Any
    p: Any
    d: Any


class Reference:
    """Greedy search over all pairs and operations, with nothing remembered between steps."""

    def __init__(
        self, model: ClusterModel, X: np.ndarray, mixing: Mixing, rose: bool, weight: np.ndarray
    ) -> None:
        self.model, self.X, self.mixing, self.rose, self.weight = model, X, mixing, rose, weight
        self._known: dict[tuple[int, ...], Any] = {}

    def f(self, leaves: tuple[int, ...]) -> Any:
        if leaves not in self._known:
            self._known[leaves] = exact_f(self.model, self.X[list(leaves)])
        return self._known[leaves]

    def leaf(self, i: int) -> Subtree:
        f = self.f((i,))
        weight = mpmath.mpf(float(self.weight[i]))
        d = mpmath.mpf(1)
        if isinstance(self.mixing, DirichletProcess):
            d = mpmath.mpf(self.mixing.alpha) * mpmath.gamma(weight)
        return Subtree((i,), [], weight, f, f, d)

    def node(self, children: list[Subtree]) -> Subtree:
        leaves = tuple(sorted(leaf for child in children for leaf in child.leaves))
        weight = sum(child.weight for child in children)
        product_d = mpmath.fprod(child.d for child in children)
        if isinstance(self.mixing, DirichletProcess):
            one = mpmath.mpf(self.mixing.alpha) * mpmath.gamma(weight)
            d = one + product_d
            pi = one / d
        else:
            gamma = mpmath.mpf(self.mixing.gamma)  # type: ignore[attr-defined]
            d = mpmath.mpf(1)
            constant = isinstance(self.mixing, Constant)
            pi = gamma if constant else 1 - (1 - gamma) ** (len(children) - 1)
        f = self.f(leaves)
        p = pi * f + (1 - pi) * mpmath.fprod(child.p for child in children)
        tree = Subtree(leaves, children, weight, f, p, d)
        tree_r = pi * f / p
        tree.r = tree_r  # type: ignore[attr-defined]
        return tree

    def candidates(self, a: Subtree, b: Subtree) -> list[tuple[Any, Subtree]]:
        """Return (score, merged tree), the simplest operation first."""
        options = []
        if self.rose:
            if a.children and b.children:
                options.append(a.children + b.children)
            if a.children:
                options.append([*a.children, b])
            if b.children:
                options.append([a, *b.children])
        options.append([a, b])
        out = []
        for children in options:
            tree = self.node(children)
            score = tree.p / (a.p * b.p)
            if not self.rose:
                score = tree.r / (1 - tree.r)  # type: ignore[attr-defined]
            out.append((score, tree))
        return out

    def run(self) -> set[tuple[int, ...]]:
        """Return the leaf sets of all nodes of the greedy tree."""
        live = {i: self.leaf(i) for i in range(len(self.X))}
        next_id = len(live)
        while len(live) > 1:
            best: tuple[Any, int, int, Subtree] | None = None
            ids = sorted(live)
            for i in ids:
                for j in ids:
                    if i < j:
                        for score, tree in self.candidates(live[i], live[j]):
                            if best is None or self._above(score, best[0]):
                                best = (score, i, j, tree)
            assert best is not None
            _, i, j, tree = best
            del live[i], live[j]
            live[next_id] = tree
            next_id += 1
        (root,) = live.values()
        out, todo = set(), [root]
        while todo:
            tree = todo.pop()
            out.add(tree.leaves)
            todo += tree.children
        return out

    def _above(self, a: Any, b: Any) -> bool:
        # a real difference, not one in the last of the digits kept
        return bool(a > b * (1 + mpmath.mpf(10) ** (10 - mpmath.mp.dps)))


def reference_clades(
    model: ClusterModel,
    X: np.ndarray,
    mixing: Mixing,
    *,
    rose: bool,
    weight: np.ndarray | None = None,
    digits: int = 150,
) -> set[tuple[int, ...]]:
    """Return the leaf sets of the nodes of the exact greedy tree."""
    weight = np.ones(len(X)) if weight is None else weight
    with mpmath.workdps(digits):
        return Reference(model, X, mixing, rose, weight).run()
