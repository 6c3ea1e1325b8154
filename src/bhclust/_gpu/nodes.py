"""Statistics of a tree's nodes that stay on a device while a prior is learned on the tree.

The formulas are the models' own, over the device's arrays (`bhclust.models._arrays`): they are
sums over all nodes and columns, which an array module does as well as kernels would. What travels
at each evaluation is one log f a node one way, and the weights of some nodes the other way.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bhclust._gpu.device import (
    DEVICE_ROWS,
    Device,
    DeviceName,
    check_device,
    cuda_device,
    has_cuda,
)
from bhclust._gpu.encode import has_kernels
from bhclust._validation import FloatArray, IntArray
from bhclust.models import ClusterModel

# Numbers of the statistics in one step: what the formulas need beside them is some ten times that.
_NUMBERS = 1 << 22
_TEMPORARIES = 16


def learning_device(
    device: DeviceName | Device, model: ClusterModel, n_leaves: int
) -> Device | None:
    """Return the device that hyperparameters are learned on, None for the processor.

    Models without kernels (a user's own, and those that hold the members themselves) are learned
    on the processor: their formulas may be anything that NumPy can do.
    """
    check_device(device, "maximise")
    if device == "cpu" or not has_kernels(model):
        return None
    if not isinstance(device, str):
        return device
    if device == "auto" and (n_leaves < DEVICE_ROWS or not has_cuda()):
        return None
    return cuda_device()


class DeviceNodes:
    """Statistics of all nodes of a tree on a device.

    Parameters
    ----------
    device : Device
        Where they stay as long as this object lives.
    stats : array of shape (n_nodes, n_stats)
        The statistics.
    """

    def __init__(self, device: Device, stats: FloatArray) -> None:
        step = 8 * min(stats.size, _NUMBERS)
        what = f"learning on a tree of {len(stats):,} nodes"
        device.require(stats.nbytes + _TEMPORARIES * step, what)
        self._device, self._n = device, len(stats)
        self._step = max(1, _NUMBERS // max(stats.shape[1], 1))
        self._stats = device.put(stats)

    def log_marginal(self, model: ClusterModel) -> FloatArray:
        """Return ``log f`` of every node."""
        out = np.empty(self._n)
        for rows in self._blocks(self._n):
            out[rows] = self._device.get(model.log_marginal(self._stats[rows]))
        return out

    def gradient(
        self, model: ClusterModel, nodes: IntArray, weights: FloatArray
    ) -> dict[str, FloatArray]:
        """Return ``Σ weights · ∂ log f / ∂ hyperparameter`` over some nodes."""
        out: dict[str, FloatArray] = {}
        for rows in self._blocks(len(nodes)):
            chosen = self._stats[self._device.put(nodes[rows])]
            slopes = model.gradient(chosen, self._device.put(weights[rows]))
            for name, slope in slopes.items():
                own = self._device.get(slope)
                out[name] = np.asarray(out[name] + own) if name in out else own
        return out

    def _blocks(self, n: int) -> Iterator[slice]:
        return (slice(start, min(start + self._step, n)) for start in range(0, n, self._step))
