"""Workloads: lengths, arrivals and classes."""
