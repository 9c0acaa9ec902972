#!/usr/bin/env bash
# Fuzzes one parser, from its corpus in tests/fuzz/corpus. New inputs stay in BUILD/found/NAME, crashes beside it.
#
#   tools/fuzz_one.sh BUILD NAME SECONDS
set -euo pipefail
build=$1 name=$2 seconds=$3
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
options=()
if [ -f "$source/tests/fuzz/$name.dict" ]; then options+=("-dict=$source/tests/fuzz/$name.dict"); fi
mkdir -p "$build/found/$name"
# Some targets write files: in memory, where there is such a place.
if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi
exec "$build/bin/${name}_fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb=256 \
  "${options[@]}" -artifact_prefix="$build/found/$name-" "$build/found/$name" "$source/tests/fuzz/corpus/$name"
