#!/usr/bin/env bash
# check.sh: the manifests against the schemas of the oldest version of Kubernetes they are for and
# of a new one, strictly, so that a field that one does not know is an error. What kustomize makes of
# them is checked, too, where there is a kubectl.
set -euo pipefail
cd "$(dirname "$0")/../.."
versions=(1.29 1.37)
folder=build/kubernetes-validate

if [ ! -x "$folder/bin/kubernetes-validate" ]; then
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet kubernetes-validate==1.37.0
fi
# Neither kustomizations nor job files.
mapfile -t files < <(grep --files-without-match --recursive --include='*.yaml' \
  -e '^kind: Kustomization' -e '^kind: Component' -e '^name: ' \
  deploy/kubernetes/{base,components,job})
if command -v kubectl >/dev/null; then
  for each in base job overlays/efa; do
    kubectl kustomize "deploy/kubernetes/$each" >"$folder/${each//\//-}.yaml"
    files+=("$folder/${each//\//-}.yaml")
  done
else
  echo "check.sh: there is no kubectl; overlays are left out" >&2
fi
failed=0
for version in "${versions[@]}"; do
  "$folder/bin/kubernetes-validate" --kubernetes-version "$version" --strict --quiet \
    "${files[@]}" || failed=1
done
[ "$failed" -eq 0 ] || exit 1
echo "${#files[@]} files are valid for Kubernetes ${versions[*]}"
