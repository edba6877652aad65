"""Reads Pod and ResourceClaim objects of the API server (as plain dicts); no other module does."""
