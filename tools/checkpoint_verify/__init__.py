"""checkpoint-verify: reads checkpoint files without their agent and reports what is wrong with them."""
