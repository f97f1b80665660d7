"""How the documentation site is built: `make docs`. Nothing is fetched while it is built or read."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from robustda import __version__

project = "robustda"
author = "the robustda authors"
copyright = author
version = release = __version__
language = "en"
smartquotes_action = "D"  # dashes only: an apostrophe may be a prime

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "commands",
    "docstrings",
    "links",
    "mathml",
]
exclude_patterns = ["_build", "_ext", "_static"]

myst_enable_extensions = ["deflist", "dollarmath", "colon_fence", "attrs_inline"]
myst_heading_anchors = 3
# Docutils' own MathML, which every browser of today renders by itself: no script, no fonts to load.
html_math_renderer = "mathml"

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_use_type_comments = False
autosummary_generate = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 92
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"robustda {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
