#!/usr/bin/env bash
# Puts Debian's docker-registry into .venv for the tests. It is unpacked, not installed: the package would start a registry
# of its own on port 5000.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v docker-registry > /dev/null && exit
[[ -x .venv/bin/docker-registry ]] && exit
if ! command -v apt-get > /dev/null; then
  echo "test: no docker-registry and no apt to get it with; the tests marked 'registry' will be skipped." >&2
  exit
fi

echo "test: unpacking Debian's docker-registry into .venv" >&2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! (cd "$folder" && apt-get download -q docker-registry); then # no lists yet
  apt-get update -q
  (cd "$folder" && apt-get download -q docker-registry)
fi
dpkg-deb -x "$folder"/docker-registry_*.deb "$folder/root"
install -m 755 "$folder/root/usr/bin/docker-registry" .venv/bin/docker-registry
