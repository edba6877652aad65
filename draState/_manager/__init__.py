"""Kubelet's side of a claim: prepare the claims of pods by calling drivers."""
