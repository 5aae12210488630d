#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures (once) and builds a preset in build/PRESET.
# Output goes to standard error, so that a caller's own output stays clean.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift

if [ ! -e "build/$preset/build.ninja" ]; then
  cmake --preset "$preset" >&2
fi
# A compiler takes up to 1 GiB: more of them than memory has room for would be slower, or killed.
jobs=$(nproc)
room=$(awk '/^MemAvailable:/ {print int($2 / 1048576)}' /proc/meminfo)
if [ "${room:-1}" -lt "$jobs" ]; then jobs=$((room > 1 ? room : 1)); fi

targets=()
for target in "$@"; do targets+=("$target"); done
# Says nothing if there was nothing to do.
if ! ninja -C "build/$preset" -n "${targets[@]}" 2>/dev/null | grep -q 'no work to do'; then
  ninja -C "build/$preset" -j "$jobs" "${targets[@]}" >&2
fi
