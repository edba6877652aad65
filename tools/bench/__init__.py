"""How fast it is, against the bare system calls and against what people would use instead."""
