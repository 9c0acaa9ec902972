#!/usr/bin/env bash
# Fuzzes the parser of `causeway plan`'s input, from the corpus in tests/fuzz/corpus. New inputs stay in build/fuzz.
#
#   tools/fuzz.sh [SECONDS]     default 60
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
cmake --preset fuzz
cmake --build --preset fuzz --target plan_input_fuzz
mkdir -p build/fuzz/found/plan_input
build/fuzz/bin/plan_input_fuzz -max_total_time="$seconds" -max_len=4096 -timeout=10 -dict=tests/fuzz/plan_input.dict \
  -artifact_prefix=build/fuzz/found/ build/fuzz/found/plan_input tests/fuzz/corpus/plan_input
