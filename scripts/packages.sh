#!/usr/bin/env bash
# Installs what Sandyard needs of the system, through apt: nothing where all of it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive

oldest_runsc=20240101 # before it, runsc has no systrap platform that is fit for use without hardware virtualisation

say() { echo "setup: $*" >&2; }

runsc_date() { grep -oE '(release-|~|^)20[0-9]{6}' <<< "$1" | grep -oE '20[0-9]{6}' | head -n 1; }

has_runsc() { # one that is new enough
  local date
  date=$(runsc_date "$(runsc --version 2> /dev/null | sed -n 's/^runsc version //p')") && ((date >= oldest_runsc))
}

has_venv() { python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; }

newest_runsc() { # the newest version that apt can get, if it is new enough
  local version newest=
  while read -r version; do
    if (($(runsc_date "$version" || echo 0) >= oldest_runsc)) &&
      { [[ -z $newest ]] || dpkg --compare-versions "$version" gt "$newest"; }; then
      newest=$version
    fi
  done < <(apt-cache madison runsc 2> /dev/null | awk -F ' *\\| *' '{ print $2 }')
  echo "$newest"
}

missing=()
has_venv || missing+=(python3-venv)
[[ -e /etc/ssl/certs/ca-certificates.crt || -e /etc/pki/tls/certs/ca-bundle.crt ]] || missing+=(ca-certificates)
for tool in skopeo umoci mmdebstrap; do command -v "$tool" > /dev/null || missing+=("$tool"); done
command -v nft > /dev/null || missing+=(nftables)
has_runsc || missing+=(runsc)
((${#missing[@]})) || exit 0

if ! command -v apt-get > /dev/null; then
  say "this system has no apt; still missing: ${missing[*]}. 'sandyard doctor' says where each comes from."
  exit 0
fi
if ((EUID != 0)); then
  say "missing: ${missing[*]}. Installing them needs root; run: sudo $PWD/scripts/packages.sh"
  exit 1
fi

exec 8< /var/lib/dpkg # set-ups of two checkouts at once: apt waits for dpkg's lock, but not for that of its lists
flock 8
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { # says nothing unless it fails
  apt-get -q -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@" > "$log" 2>&1 || { cat "$log" >&2; return 1; }
}

say "installing with apt: ${missing[*]}"
apt update
if [[ " ${missing[*]} " == *" runsc "* ]]; then
  version=$(newest_runsc)
  if [[ -z $version ]]; then
    say "apt knows no runsc of 2024 or later; adding Debian's backports: $(scripts/backports-source)"
    apt update
    version=$(newest_runsc)
  fi
  if [[ -z $version ]]; then
    say "no source of apt has runsc of 2024 or later, and older ones cannot run sandboxes well enough (no systrap platform)."
    say "Install a newer one from the gVisor project, then run this again."
    exit 1
  fi
  missing=("${missing[@]/%runsc/runsc=$version}")
fi
apt install -y --no-install-recommends "${missing[@]}"

hash -r
if ! has_runsc; then
  say "runsc on PATH is still not of 2024 or later: $(command -v runsc) says '$(runsc --version 2>&1 | head -n 1)'."
  say "Remove it, or put the newer one before it on PATH."
  exit 1
fi
if ! has_venv; then
  say "python3 on PATH, $(command -v python3), is older than 3.11 or has no venv module."
  exit 1
fi
