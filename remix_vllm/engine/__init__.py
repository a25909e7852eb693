"""Adapters onto vLLM: configuration, scheduler, model state, sampler."""
