"""vLLM plugin that serves masked diffusion language models with ReMix decoding.

Importing this package imports neither torch nor vLLM: every ``vllm`` command loads it through the
``vllm.general_plugins`` entry point, whatever model it is going to serve.
"""

__version__ = "0.1.0"
