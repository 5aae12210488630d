#!/usr/bin/env bash
# check.sh CHECK [ARGUMENT...]: the checks that take too long for every change.
#
#   clang                       everything built by Clang, whose lock annotations are errors
#   tidy [FILE...]              clang-tidy over all own sources, or those given
#   asan, tsan                  the suite under a sanitizer, as far as it can run there
#   fuzz [SECONDS [TARGET...]]  each fuzz target, or those given, for 60 seconds
#   container                   what the image holds is enough to train, in a bare Debian (as root)
#   kubernetes                  manifests against the schemas of Kubernetes, old and new
#
# Installs what they need. Fails if a check finds something.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,11s/^# \{0,1\}//p' deploy/check.sh
}
refuse() {
  printf 'check.sh: %s\n\n' "$1" >&2
  usage >&2
  exit 2
}

[ $# -gt 0 ] || refuse "expected the name of a check"
check=$1
shift
case "$check" in
  clang | tidy | asan | tsan | fuzz | container | kubernetes) ;;
  -h | --help) usage; exit ;;
  *) refuse "there is no check '$check'" ;;
esac
if [ "$check" = fuzz ]; then
  # What is no number, or 0, would mean to libFuzzer: for ever.
  seconds=${1:-60}
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || refuse "expected seconds above 0 to fuzz, got '$seconds'"
  targets=("${@:2}")
  for target in "${targets[@]}"; do
    [ -d "tests/fuzz/corpus/$target" ] || refuse "there is no fuzz target '$target' in tests/fuzz/corpus"
  done
fi
deploy/install_packages.sh deploy/packages/{build,run,test,check}.txt

case "$check" in
  clang)
    deploy/build.sh clang
    ;;
  tidy)
    # clang-tidy cannot read precompiled headers of another build.
    cmake --preset clang -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >&2
    mapfile -t generated < <(ninja -C build/tidy -t targets all | sed -n 's/^\(muster.*\.pb\.h\):.*/\1/p')
    ninja -C build/tidy "${generated[@]}" >&2
    files=("$@")
    if [ ${#files[@]} -eq 0 ]; then
      # Only what is built here: the parts behind absent packages have no compile command.
      mapfile -t files < <(comm -12 <(git ls-files '*.cc' | sort) \
        <(sed -n "s|^  \"file\": \"$PWD/\(.*\)\",\{0,1\}$|\1|p" build/tidy/compile_commands.json | sort -u))
    fi
    printf '%s\0' "${files[@]}" |
      xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet --warnings-as-errors='*' -p build/tidy
    ;;
  asan | tsan)
    # The preset names what to build.
    [ -e "build/$check/build.ninja" ] || cmake --preset "$check" >&2
    cmake --build --preset "$check" -j "$(nproc)" >&2
    ctest --preset "$check" "$@"
    ;;
  fuzz)
    deploy/build.sh asan muster-fuzz
    if [ ${#targets[@]} -eq 0 ]; then mapfile -t targets < <(ls tests/fuzz/corpus); fi
    for target in "${targets[@]}"; do
      # New inputs stay in the build folder; what breaks a target is worth a place in tests/fuzz/corpus.
      mkdir -p "build/asan/corpus/$target"
      build/asan/bin/muster-fuzz "--target=$target" -max_total_time="$seconds" -timeout=10 \
        -artifact_prefix="build/asan/corpus/$target-" "build/asan/corpus/$target" \
        "tests/fuzz/corpus/$target"
    done
    ;;
  container)
    deploy/build.sh release \
      muster muster-checkpoint muster-coordinator muster-parameter-server muster-worker
    deploy/container/check.sh
    ;;
  kubernetes)
    deploy/kubernetes/check.sh
    ;;
esac
