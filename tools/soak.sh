#!/usr/bin/env bash
# tools/soak.sh PROGRAM FIRST_SEED SEEDS JOBS: the seeds in parts of 200, JOBS at once. The exit status is 1 when any of them found something.
set -euo pipefail
program=$1 first=$2 seeds=$3 jobs=$4
for ((at = first; at < first + seeds; at += 200)); do
  printf '%s %s\n' "$at" "$((first + seeds - at < 200 ? first + seeds - at : 200))"
done | xargs -P "$jobs" -L 1 bash -c '"$0" --first_seed="$1" --seeds="$2" || exit 1' "$program"
