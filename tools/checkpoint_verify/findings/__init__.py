"""What is on the disk, and what is wrong with it. Nothing here writes to a state directory or prints."""
