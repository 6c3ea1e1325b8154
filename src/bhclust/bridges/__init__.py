"""To other packages' own objects: networkx, ETE, scikit-bio, AnnData, ArviZ.

Each of these packages is optional and is imported by the function that needs it.
"""

from bhclust.bridges.annotated import to_anndata
from bhclust.bridges.draws import to_arviz
from bhclust.bridges.support import node_support
from bhclust.bridges.trees import to_ete, to_networkx, to_skbio

__all__ = [
    "node_support",
    "to_anndata",
    "to_arviz",
    "to_ete",
    "to_networkx",
    "to_skbio",
]
