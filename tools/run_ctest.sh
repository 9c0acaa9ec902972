#!/usr/bin/env bash
# Runs the tests of one build folder and writes their results as JUnit XML, for tools/test_summary.py.
#
#   tools/run_ctest.sh BUILD_FOLDER RESULT_FILE [ctest options]
#
# CAUSEWAY_TEST_JOBS: how many tests run at once (default 2: several start processes of their own).
set -euo pipefail
build=$1
mkdir -p "$(dirname "$2")"
result=$(realpath "$2")
shift 2
rm -f "$result"
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/tests/tsan.supp}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/tests/lsan.supp:print_suppressions=0}
# A skipped test counts as passed for ctest's limits of output; its reason must not be cut off.
exec ctest --test-dir "$build" --parallel "${CAUSEWAY_TEST_JOBS:-2}" --output-on-failure --no-tests=error \
  --test-output-size-passed 65536 --output-junit "$result" "$@"
