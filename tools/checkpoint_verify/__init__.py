"""checkpoint-verify: reads checkpoint files offline and says what is wrong with them."""
