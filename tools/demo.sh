#!/usr/bin/env bash
# make demo: a coordinator and four unlike workers in two sites on this machine, over mutual TLS, train a small CNN on Fashion-MNIST.
# Everything it writes is below build/demo (CAUSEWAY_DEMO_DIR), which it empties first; every process it starts is ended by its pid.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=${CAUSEWAY_BIN:-$PWD/build/bin}
dir=${CAUSEWAY_DEMO_DIR:-$PWD/build/demo}
data=${CAUSEWAY_DEMO_DATA:-/usr/share/datasets/fashion-mnist}
job=${CAUSEWAY_DEMO_JOB:-$PWD/deploy/config/demo-job.yaml}
name=$(sed -n 's/^name: *//p' "$job")

# worker site slow-down down up: unlike devices (all slow-downs together fill less than two cores) on unlike links.
workers=(
  "lab-fast lab 2 40MB 20MB"
  "lab-slow lab 4 40MB 20MB"
  "home-fast home 3 4MB 1MB"
  "home-slow home 8 2MB 500kB"
)

declare -A pids=()
stop() {
  local pid
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
}
trap stop EXIT
fail() {
  echo "demo: $1" >&2
  [ -z "${2:-}" ] || { echo "--- the end of $2:" >&2; tail -n 20 "$2" >&2; }
  exit 1
}
free_port() { /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "waited in vain for $what" "$dir/coordinator.log"
    sleep 0.2
  done
}

[ -e "$data/train-images-idx3-ubyte.gz" ] || fail "no Fashion-MNIST in $data: run make deps (package dataset-fashion-mnist)"
[ -z "$(ls -A "$dir" 2>/dev/null)" ] || [ -d "$dir/coordinator" ] || fail "$dir is not empty and not of an earlier demo"
rm -rf "$dir"
mkdir -p "$dir"
port=$(free_port)
http=$(free_port)
causeway=("$bin/causeway" --context "$dir/operator/")

echo "== A coordinator on 127.0.0.1:$port"
"${causeway[@]}" init --address "127.0.0.1:$port" --dir "$dir/coordinator" --data-root "$data"
sed -i -e "s/^listen:.*/listen: 127.0.0.1:$port/" -e "s/127.0.0.1:7480/127.0.0.1:$http/" "$dir/coordinator/coordinator.yaml"
"$bin/causeway-coordinator" --config "$dir/coordinator/coordinator.yaml" 2>"$dir/coordinator.log" &
pids[coordinator]=$!
ready() { kill -0 "${pids[coordinator]}" && "${causeway[@]}" site list; }
wait_for 20 "the coordinator" ready

echo
echo "== Four workers join two sites (emulated: they share this machine)"
declare -A token=() pin=()
for site in lab home; do
  line=$("${causeway[@]}" site add "$site" --uses 2)
  echo "$line"
  token[$site]=$(sed -n 's/.*--token \([^ ]*\).*/\1/p' <<<"$line")
  pin[$site]=$(sed -n 's/.*--ca-pin \([^ ]*\).*/\1/p' <<<"$line")
done
for spec in "${workers[@]}"; do
  read -r worker site slowdown down up <<<"$spec"
  "$bin/causeway-worker" join "127.0.0.1:$port" --token "${token[$site]}" --ca-pin "${pin[$site]}" --name "$worker" --dir "$dir/$worker" \
    --emulate-slowdown "$slowdown" --emulate-down "$down" --emulate-up "$up" --threads 1 >"$dir/$worker.log" 2>&1 &
  pids[$worker]=$!
done
live() { [ "$("${causeway[@]}" worker list --output json | grep -o '"live": *true' | wc -l)" = "${#workers[@]}" ]; }
wait_for 40 "the workers" live
"${causeway[@]}" worker list

echo
echo "== The job"
"${causeway[@]}" job submit "$job"
"${causeway[@]}" job watch "$name" --timeout 10m || fail "the job did not finish" "$dir/coordinator.log"

echo
echo "== What it came to"
"${causeway[@]}" job show "$name"
"${causeway[@]}" model fetch "$name" --out "$dir/model.safetensors"
curl -fsS "http://127.0.0.1:$http/metrics" >"$dir/metrics.txt" || fail "no metrics" "$dir/coordinator.log"
echo
echo "model    $dir/model.safetensors"
echo "logs     $dir/coordinator.log $(for spec in "${workers[@]}"; do echo "$dir/${spec%% *}.log"; done | paste -sd' ')"
echo "metrics  $dir/metrics.txt (as scraped from http://127.0.0.1:$http/metrics while it ran)"
echo "state    $dir/coordinator (journal, checkpoints, chunks)"
