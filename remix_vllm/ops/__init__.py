"""Tensor operations of a step over the vocabulary and the embedding table."""
