#!/usr/bin/env bash
# Installs what is missing, and nothing twice: with everything there it asks no network and needs no root.
#
#   tools/deps.sh [build|test|check]     each level includes the ones before it; default: build
#
# build: what `make build` and the daemons need, the pinned libtorch included (CAUSEWAY_GPU=1: with all that a GPU needs).
# test:  what the tests need besides; the full Python set is wanted, not required (tests labelled `python` skip without it).
# check: what the checks of .ci/run need besides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source versions.env
readonly CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/causeway"

say() { printf 'deps: %s\n' "$*"; }
die() { printf 'deps: %s\n' "$*" >&2; exit 1; }

packages_of() {  # packages_of SET... -> names
  local set
  for set in "$@"; do awk -v set="$set" '$1 == set { print $2 }' tools/apt-packages.txt; done
}

missing_of() {  # missing_of PACKAGE... -> those not installed
  local package status
  for package in "$@"; do
    status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || echo "$package"
  done
}

as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

# A package that brings a service (Prometheus does) must not start it: whoever wants it running starts it.
POLICY=/usr/sbin/policy-rc.d
forbid_services() {
  [[ -e $POLICY ]] && return
  as_root sh -c "printf '#!/bin/sh\nexit 101\n' > $POLICY && chmod 755 $POLICY"
  trap 'as_root rm -f "$POLICY"' EXIT
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}

install_apt() {  # install_apt SET...
  local wanted missing
  mapfile -t wanted < <(packages_of "$@")
  mapfile -t missing < <(missing_of "${wanted[@]}")
  if [[ ${#missing[@]} == 0 ]]; then
    say "${#wanted[@]} Debian packages present"
    return
  fi
  if [[ $(id -u) != 0 ]] && ! command -v sudo >/dev/null; then
    die "neither root nor sudo; as root run: apt-get install ${missing[*]}"
  fi
  if [[ -r /etc/os-release ]] && ! grep -q "^VERSION_ID=\"$CAUSEWAY_DEBIAN_RELEASE\"" /etc/os-release; then
    say "this is not Debian $CAUSEWAY_DEBIAN_RELEASE: versions may not fit"
  fi
  say "installing ${missing[*]}"
  forbid_services
  # Lists that are missing or out of date are fetched once.
  if ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || ! apt_install "${missing[@]}"; then
    as_root apt-get update
    apt_install "${missing[@]}"
  fi
  if [[ " ${missing[*]} " == *" prometheus "* && -d /run/systemd/system ]]; then
    as_root systemctl disable --quiet prometheus
  fi
  mapfile -t missing < <(missing_of "${wanted[@]}")
  [[ ${#missing[@]} == 0 ]] || die "still missing: ${missing[*]}"
}

# A venv counts only with its marker, written last, that lists what it holds: an interrupted or outdated one is made anew.
venv_complete() {  # venv_complete FOLDER REQUIREMENT...
  local venv=$1
  shift
  [[ -f $venv/.complete && $(<"$venv/.complete") == "$*" ]]
}

make_venv() {  # make_venv FOLDER PIP_OPTIONS REQUIREMENT... (an option string of its own: what is listed in the marker are versions)
  local venv=$1 options=$2
  shift 2
  if venv_complete "$venv" "$@"; then
    say "$venv present"
    return
  fi
  say "making $venv: $*"
  rm -rf "$venv"
  mkdir -p "$(dirname "$venv")"
  /usr/bin/python3 -m venv "$venv"
  # shellcheck disable=SC2086  # The options are words.
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input $options "$@" || return
  printf '%s' "$*" > "$venv/.complete"
}

cpu_set() {
  make_venv "$CACHE/torch-$CAUSEWAY_TORCH_VERSION-cpu" --no-deps "torch==$CAUSEWAY_TORCH_VERSION" \
    "nvidia-cuda-runtime==$CAUSEWAY_CUDA_RUNTIME_VERSION" "nvidia-cuda-cupti==$CAUSEWAY_CUDA_CUPTI_VERSION"
}

# torch with its dependencies: what a GPU needs, and what `import torch` needs anywhere. torchvision and the rest are for the
# tests that compare with Python.
full_set() {
  make_venv "$CACHE/torch-$CAUSEWAY_TORCH_VERSION-full" "" "torch==$CAUSEWAY_TORCH_VERSION" \
    "torchvision==$CAUSEWAY_TORCHVISION_VERSION" "numpy==$CAUSEWAY_NUMPY_VERSION" "pillow==$CAUSEWAY_PILLOW_VERSION" \
    "safetensors==$CAUSEWAY_SAFETENSORS_VERSION"
}

sets=(build)
case "${1:-build}" in
  build) ;;
  test) sets+=(test) ;;
  check) sets+=(test check) ;;
  *) die "usage: tools/deps.sh [build|test|check]" ;;
esac

install_apt "${sets[@]}"
mkdir -p "$CACHE"
exec {lock}> "$CACHE/.lock"
flock "$lock"  # Two runs at once would make the same venv.
if [[ ${CAUSEWAY_GPU:-0} == 1 ]]; then
  full_set || die "libtorch could not be installed"
else
  cpu_set || die "libtorch could not be installed"
  if [[ ${#sets[@]} -gt 1 ]]; then
    full_set || say "the full Python set could not be installed: tests labelled 'python' will be skipped"
  fi
fi
