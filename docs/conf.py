"""Sphinx settings of the documentation: ``make docs`` writes it to ``build/docs``."""

from __future__ import annotations

import sys
from pathlib import Path

import bhclust

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))

project = "bhclust"
author = "The bhclust developers"
copyright = "The bhclust developers"
version = release = bhclust.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "plain_markdown",
    "mathml",
]
exclude_patterns = ["_site", "gallery", "results/papers/units", "**/.ipynb_checkpoints"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # settings of the gallery hold a class, which is not stored

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types are in the docstrings, in words
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False  # autodoc lists them

html_theme = "furo"
html_title = f"bhclust {release}"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # times are in the benchmarks
    "write_computation_times": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "copyfile_regex": r"",
}
