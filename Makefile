# Everything here runs on a CPU. With a GPU: pip install vllm==0.32.0 && pip install .

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000

# Nothing is downloaded and nothing is reported, whatever runs below.
export HF_HUB_OFFLINE := 1
export VLLM_NO_USAGE_STATS := 1

.PHONY: demo serve test lint setup clean

demo: setup
	.venv/bin/python -m benchmarks.demo

serve: setup
	.venv/bin/vllm serve remix_vllm/assets/tiny-llada --decoding remix --enforce-eager \
		--kv-cache-memory-bytes 256M --host $(HOST) --port $(PORT)

test: lint
	.venv/bin/python -m pytest

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy remix_vllm

setup:
	@PYTHON=$(PYTHON) patches/cpu_wheel/setup_cpu.sh

clean:
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist *.egg-info
