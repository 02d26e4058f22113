#!/bin/sh
# Prepares what tests/test_engines.py, test_vllm.py and test_sglang.py drive: the Python files of vLLM and SGLang, from their wheels, and
# the small packages that their parsers import.  No torch, nothing for a GPU: tests/engines.py stands in for those.
#
#     tests/prepare_engines.sh DIR [PYTHON]
#     CHATCODEC_ENGINES=DIR python -m pytest tests/test_engines.py tests/test_vllm.py tests/test_sglang.py
set -eu
directory=$1
python=${2:-python3}
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT

mkdir -p "$directory"
"$python" -m pip install -q --target "$directory" \
    aiohttp blake3 cachetools cbor2 cloudpickle einops fastapi ijson "mcp>=2.2,<3" mistral_common msgspec "openai>=2.25" orjson \
    oss-harmony partial-json-parser pillow prometheus_client psutil py-cpuinfo pybase64 python-json-logger pyzmq transformers uvloop
for wheel in vllm==0.33.0 sglang==0.5.23; do
    "$python" -m pip download -q --no-deps --only-binary :all: --implementation cp --python-version 3.11 \
        --platform manylinux_2_34_x86_64 --platform manylinux_2_28_x86_64 --dest "$wheels" "$wheel"
done
"$python" - "$directory" "$wheels"/*.whl <<'PYTHON'
import sys
import zipfile

for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(sys.argv[1], [name for name in archive.namelist() if name.endswith((".py", "METADATA"))])
PYTHON
