"""What the users of a cluster see of a plugin: events, and the status of devices. No call waits for it."""
