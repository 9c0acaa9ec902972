#!/usr/bin/env bash
# Fuzzes every parser of bytes from outside, one after the other. New inputs stay in build/fuzz/found.
#
#   tools/fuzz.sh [SECONDS [NAME...]]     default: 60 seconds each, all of tests/fuzz/corpus
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
shift || true
names=("$@")
if [ ${#names[@]} = 0 ]; then mapfile -t names < <(ls tests/fuzz/corpus); fi
cmake --preset fuzz
cmake --build --preset fuzz --target "${names[@]/%/_fuzz}"
for name in "${names[@]}"; do
  printf '\n%s, %s s\n' "$name" "$seconds"
  tools/fuzz_one.sh build/fuzz "$name" "$seconds"
done
