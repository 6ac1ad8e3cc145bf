#!/usr/bin/env bash
# boot.sh ROOT NAME: starts the systemd of ROOT as PID 1 in namespaces of its own: processes, mounts, network, host
# name, cgroups. What it says goes to NAME.log. Ends when it is killed.
set -euo pipefail
root=$1 name=$2
exec unshare --pid --fork --mount --cgroup --net --uts --ipc --kill-child bash -c '
  set -e
  root=$1
  mount --make-rprivate /
  mount --bind "$root" "$root"
  cd "$root"
  mount -t proc proc proc
  mount -t sysfs -o ro sysfs sys
  mkdir -p sys/fs/cgroup
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  mount -t tmpfs -o mode=755 tmpfs run
  mount -t tmpfs -o mode=1777 tmpfs tmp
  mount -t tmpfs -o mode=755 tmpfs dev
  for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
  mkdir dev/pts dev/shm; ln -s /proc/self/fd dev/fd; mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts; ln -s pts/ptmx dev/ptmx
  ip link set lo up 2>/dev/null || true
  mkdir -p .old; pivot_root . .old; umount -l /.old; rmdir /.old 2>/dev/null || true
  exec env -i container=rumbo-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console --show-status=false
' boot "$root" > "$name.log" 2>&1
