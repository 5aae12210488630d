#!/usr/bin/env bash
# install_packages.sh LIST...: installs the Debian packages named in the lists, one name a line.
#
# Does nothing, quickly, if all of them are there. Needs root or sudo otherwise, and says what to do
# where it has neither. Output goes to standard error.
set -euo pipefail

mapfile -t wanted < <(cat "$@" | sed 's/#.*//' | tr -s ' \t' '\n' | grep . | sort -u)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is no Debian system (no apt-get). Muster is built on Debian 12; elsewhere install the" \
    "equivalents of these packages and run build/release/bin/muster after" \
    "'cmake --preset release && cmake --build --preset release': ${wanted[*]}" >&2
  exit 1
fi

# "name status" of what dpkg knows; a package it has never heard of makes it exit with 1.
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qx "$package installed" <<<"$installed" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing, and installing them needs root (there is no sudo). As root run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
  # Without a terminal a question for a password would wait for ever.
  if [ ! -t 0 ]; then as_root=(sudo -n); fi
fi

echo "installing ${#missing[@]} Debian packages: ${missing[*]}" >&2
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
    -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >&2 </dev/null
}
if ! apt update || ! apt install --no-install-recommends "${missing[@]}"; then
  echo "The packages above could not be installed. Check the network and /etc/apt/sources.list (Debian" \
    "12, section main), then try again." >&2
  exit 1
fi
