"""The decoding algorithms, in pure torch: nothing here imports vLLM."""
