"""A DRA kubelet plugin whose memory is a ClaimInfoCache: a working model for agents on this library.

The way of a claim: plugin.py takes kubelet's call, preparer.py decides and records, cdi.py tells the container
runtime. agent.py starts and ends all of it; README.md says how to make your own from it.
"""
