"""Headroom: capacity and cost planning for LLM serving."""
