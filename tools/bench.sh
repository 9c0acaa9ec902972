#!/usr/bin/env bash
# `make bench`: runs every benchmark program in build/bin/ and every bench script in tests/bench/, and writes build/bench/NAME.json.
#
#   tools/bench.sh [NAME...]     only these
#
# A script gets the path of the file that it is to write as its argument. A failing benchmark does not stop the others.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/bench
shopt -s nullglob

wanted() {  # wanted NAME SELECTED...
  local name=$1
  shift
  [[ $# == 0 || " $* " == *" $name "* ]]
}

failed=()
for program in build/bin/*_bench tests/bench/*_bench.sh tests/bench/*_bench.py; do
  name=$(basename "${program%.*}")
  wanted "$name" "$@" || continue
  printf '== %s\n' "$name"
  result=build/bench/$name.json
  rm -f "$result"
  case $program in
    build/bin/*) "$program" --benchmark_out="$result" --benchmark_out_format=json ;;
    *) "$program" "$result" ;;
  esac
  [[ $? == 0 && -s $result ]] || failed+=("$name")
done
if [[ ${#failed[@]} != 0 ]]; then
  printf 'bench: failed: %s\n' "${failed[*]}"
  exit 1
fi
