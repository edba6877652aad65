"""A DRA kubelet plugin whose state is a ClaimInfoCache: a working model for agents on this library.

The life of a claim: plugin.py takes kubelet's call, draState.ClaimPreparer decides and records, cdihooks.py and cdi.py
write the file for the container runtime. agent.py starts and stops everything; README.md says how to make your own.
"""
