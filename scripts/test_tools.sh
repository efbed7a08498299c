#!/usr/bin/env bash
# Installs the other sandboxes that the benchmark's tests compare with, through apt: nothing where they are there already.
set -euo pipefail

missing=()
for tool in podman runc bwrap fio; do command -v "$tool" > /dev/null || missing+=("${tool/bwrap/bubblewrap}"); done
((${#missing[@]})) || exit 0
if ! command -v apt-get > /dev/null || ((EUID != 0)); then
  echo "test: without ${missing[*]}, which need apt and root, the tests that use them will be skipped." >&2
  exit 0
fi
echo "test: installing with apt: ${missing[*]}" >&2
install() { apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}" > /dev/null; }
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
install 2> /dev/null || { apt-get -q update > /dev/null && install; }
