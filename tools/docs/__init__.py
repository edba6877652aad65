"""The pages of this project, and the site that `tools/docs/build` makes of them.

The pages are the .md files of the repository, as they are; the reference is pdoc's. Nothing in here is installed.
"""
