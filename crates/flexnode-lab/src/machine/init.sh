#!/bin/busybox sh
# The first program of the guest: finds the root disk, makes the tree this machine's, and goes on with its systemd.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b insmod /virtio_blk.ko
until [ -b /dev/vda ] && [ -b /dev/vdb ]; do $b usleep 20000; done
$b mount -t ext4 /dev/vda /root || exec $b sh
$b mount -t ext4 -o ro /dev/vdb /root/srv || exec $b sh
word() { $b sed -n "s/.*lab\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
name=$(word name) address=$(word address) gateway=$(word gateway)
$b printf '%s\n' "$name" >/root/etc/hostname
$b printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >/root/etc/hosts
$b printf '[Match]\nType=ether\nName=eth0\n[Network]\nAddress=%s/24\nGateway=%s\n' "$address" "$gateway" >/root/etc/systemd/network/10-lab.network
# Without one systemd takes this boot for the first of a new installation, and sets that up.
[ -s /root/etc/machine-id ] || $b tr -d - </proc/sys/kernel/random/uuid >/root/etc/machine-id
if [ "$(word usr)" = ro ]; then
  $b mount -o bind /root/usr /root/usr
  $b mount -o remount,bind,ro /root/usr
fi
for m in proc sys dev; do $b mount -o move /$m /root/$m; done
exec $b switch_root /root /sbin/init
