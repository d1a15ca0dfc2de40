#!/bin/bash
# The lab's commands in the guest. A request is a line: ID SCRIPT INPUT; its answer a line: ID STATUS :OUTPUT :ERRORS.
# The texts are in base64. A line is begun with a line end: what was cut off by a reboot before it does not spoil it.
export HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd /
until [ -e /dev/virtio-ports/lab ]; do sleep 0.1; done
exec 3<>/dev/virtio-ports/lab
while read -r id script input <&3; do
  [ -n "$id" ] || continue
  (
    out=$(mktemp /run/lab.XXXXXX) err=$(mktemp /run/lab.XXXXXX)
    base64 -d <<<"$input" | bash -c "$(base64 -d <<<"$script")" >"$out" 2>"$err" 3>&-
    status=${PIPESTATUS[1]}
    { flock 9; printf '\n%s %s :%s :%s\n' "$id" "$status" "$(base64 -w0 "$out")" "$(base64 -w0 "$err")" >&3; } 9>/run/lab.lock
    rm -f "$out" "$err"
  ) &
done
