"""Densities of new items under the clusters of a tree, on a device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bhclust._gpu.device import (
    Device,
    DeviceName,
    Program,
    check_device,
    cuda_device,
    has_cuda,
)
from bhclust._gpu.encode import EncodedPart, Rows, has_kernels, model_type
from bhclust._gpu.search import Layout, best_layout, parts_of, record_words
from bhclust._validation import FloatArray
from bhclust.models import ClusterModel

# Items on the device at a time, and numbers of a matrix of densities.
_ITEMS = 1 << 18
_NUMBERS = 1 << 27
# From so many densities on, device="auto" takes a graphics processor.
_DEVICE_PAIRS = 1 << 24


def prediction_device(
    device: DeviceName | Device, model: ClusterModel, weight: FloatArray, n_pairs: int
) -> Device | None:
    """Return the device that prediction runs on, None for the processor.

    Clusters of weighted items have counts that are no whole numbers; the processor takes them.
    """
    check_device(device, "prediction")
    if device == "cpu" or not has_kernels(model) or bool((weight != 1).any()):
        return None
    if not isinstance(device, str):
        return device
    if device == "auto" and (n_pairs < _DEVICE_PAIRS or not has_cuda()):
        return None
    return cuda_device()


class DeviceMixture:
    """A weighted mixture of clusters on a device.

    Parameters
    ----------
    device : Device
        Where the densities are computed.
    model : ClusterModel
        A resolved model.
    stats : array of shape (n_clusters, n_stats)
        The clusters.
    log_weight : array of shape (n_clusters,)
        Their weights.
    n_items : int
        The most items in one of them.
    """

    def __init__(
        self,
        device: Device,
        model: ClusterModel,
        stats: FloatArray,
        log_weight: FloatArray,
        *,
        n_items: int,
    ) -> None:
        self._device, self._model, self._stats = device, model, stats
        self._log_weight = device.put(np.asarray(log_weight, dtype=np.float64))
        self._n_items = n_items

    def log_density(self, items: FloatArray) -> FloatArray:
        """Return the log density of each item, given by its statistics."""
        out = np.empty(len(items))
        for start in range(0, len(items), _ITEMS):
            block = items[start : start + _ITEMS]
            parts, layout, program, kernel = self._load(block, "mixture_densities")
            found = self._device.arrays.zeros(len(block))
            arguments = (len(block), len(self._stats), self._log_weight, found)
            program.launch(kernel, self._device.n_blocks, layout.shared_bytes, arguments)
            out[start : start + len(block)] = self._device.get(found)
            del parts
        return out

    def joint(self, items: FloatArray) -> Iterator[FloatArray]:
        """Yield log weight + log density, (some items, n_clusters), item after item."""
        step = max(1, min(_ITEMS, _NUMBERS // max(1, len(self._stats))))
        for start in range(0, len(items), step):
            block = items[start : start + step]
            parts, layout, program, kernel = self._load(block, "joint_densities")
            n_blocks = self._device.n_blocks
            chunk = -(-len(block) // (n_blocks * self._device.warp)) * self._device.warp
            out = self._device.arrays.zeros((len(self._stats), len(block)))
            arguments = (len(block), len(self._stats), chunk, self._log_weight, out)
            program.launch(kernel, n_blocks, layout.shared_bytes, arguments)
            yield self._device.get(out).T
            del parts, out

    def _load(
        self, items: FloatArray, kernel: str
    ) -> tuple[list[EncodedPart], Layout, Program, str]:
        """Put items and clusters on the device; the parts keep their memory alive."""
        device = self._device
        what = f"a block of {len(items):,} rows and {len(self._stats):,} clusters"
        device.require(16 * (items.size + self._stats.size), what)
        rows = Rows(device, items, self._stats, len(self._stats), self._n_items)
        parts = parts_of(self._model, rows)
        layout = best_layout(device, parts)
        name = f"{kernel}<{model_type(parts)}, {layout.near}, {layout.n_foci}>"
        program = device.program((name,))
        program.write_record(record_words(device, parts, layout))
        return parts, layout, program, name
