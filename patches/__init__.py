"""What has to be changed in vLLM from outside; installed as the package `remix_vllm_patches`."""
