"""Builds the release files from the last commit and nothing else; README.md describes them and their tests.

Only the standard library is used here. The builders (hatchling, PyInstaller, staticx) are the dependency group release,
which is installed into its own environment.
"""
