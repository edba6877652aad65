"""Measures how fast the library is, against the bare system calls and against what people would use instead."""
