#!/usr/bin/env bash
# `make test`: installs what is missing, builds, tests. The last line is `N passed, M failed, K skipped`.
#
#   tools/test.sh [ctest options]     for example: tools/test.sh -R base_tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed_before_testing() {
  printf '\nFAILED: %s\n0 passed, 1 failed, 0 skipped\n' "$1"
  exit 1
}

rm -f build/results/test.xml  # Of an earlier run.
tools/deps.sh test || failed_before_testing "installing what is missing"
make --no-print-directory build || failed_before_testing "the build"
tools/run_ctest.sh build build/results/test.xml "$@" || true  # The summary says it and sets the exit status.
python3 tools/test_summary.py build/results/test.xml
