"""The driver's side of a claim: set it up, tear it down, and keep it in step with the API server."""
