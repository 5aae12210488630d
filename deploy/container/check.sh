#!/usr/bin/env bash
# check.sh: whether the container image can work, on a machine without Docker: the last stage of the
# Containerfile, done in a bare Debian 12 in a folder (as root, with debootstrap), with the binaries
# of build/release. Ends with a job in it, of a coordinator and two workers, as the image's user.
#
# MUSTER_BINARIES names another folder of binaries.
set -euo pipefail
cd "$(dirname "$0")/../.."
binaries=${MUSTER_BINARIES:-build/release/bin}
programs=(muster muster-checkpoint muster-coordinator muster-parameter-server muster-worker)
user=10001

if [ "$(id -u)" -ne 0 ]; then
  echo "check.sh: a bare Debian can be made only as root" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  if [ ! -x "$binaries/$program" ]; then
    echo "check.sh: there is no $binaries/$program; run: deploy/build.sh release ${programs[*]}" >&2
    exit 1
  fi
done

work=$(mktemp -d)
root=$work/root
readonly_root=$work/readonly
clean_up() {
  if mountpoint --quiet "$readonly_root"; then umount --recursive "$readonly_root"; fi
  if mountpoint --quiet "$root/proc"; then umount "$root/proc"; fi
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
mkdir "$root" "$readonly_root"

debootstrap --variant=minbase bookworm "$root" >&2
mount -t proc proc "$root/proc"
cp -r deploy "$root/deploy"
chroot "$root" /deploy/install_packages.sh /deploy/packages/runtime.txt
rm -rf "$root/var/cache/apt" "$root/var/lib/apt/lists" "$root/deploy"
mkdir "$root/var/cache/muster"
for program in "${programs[@]}"; do install "$binaries/$program" "$root/usr/local/bin/"; done
echo "the image would have $(du --summarize --human-readable --one-file-system "$root" | cut -f 1)"
cp -r --parents examples /usr/share/datasets/fashion-mnist "$root"

# As a pod sees it: nothing can be written but what is mounted for that.
mount --bind "$root" "$readonly_root"
mount -o remount,bind,ro "$readonly_root"
mount -t proc proc "$readonly_root/proc"
for folder in /tmp /var/cache/muster; do
  mount -t tmpfs -o "uid=$user,gid=$user" tmpfs "$readonly_root$folder"
done
as_user() {
  chroot --userspec="$user:$user" "$readonly_root" env -i PATH=/usr/local/bin:/usr/bin:/bin \
    XDG_CACHE_HOME=/var/cache "$@"
}
for program in "${programs[@]}"; do
  if as_user ldd "/usr/local/bin/$program" | grep 'not found'; then
    echo "check.sh: $program lacks libraries; see deploy/packages/runtime.txt" >&2
    exit 1
  fi
  echo "$program $(as_user "$program" --version)"
done
as_user muster up --workers 2 --job /examples/fashion-mnist-mlp.yaml --steps 60 \
  --run-directory /tmp/run
