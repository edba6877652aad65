"""The pages of this project, and the site that `tools/docs/build` makes of them.

The pages are the .md files of the repository. The reference is made from docstrings by pdoc, the options from the
parsers of the commands. Nothing in here is installed.
"""
