from ebreg import __version__

project = "ebreg"
copyright = "2026, the ebreg authors"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
myst_fence_as_directive = ["math"]  # as GitHub shows them
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
html_theme = "furo"
