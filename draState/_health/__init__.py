"""The health of devices, as drivers report it and as pods show it."""
