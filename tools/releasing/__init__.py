"""What is handed out, built from the last commit and from nothing else; README.md says what it is and how it was tried.

Only the standard library is used here. What builds (hatchling, PyInstaller, staticx) is the extra [release], which goes
into an environment of its own.
"""
