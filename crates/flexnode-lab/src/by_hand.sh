# Makes this host a node. Filled in by by_hand.rs: words in @…@.
set -e
slot=/opt/unbounded/node/by-hand
mkdir -p $slot/bin $slot/cni $slot/etc /opt/cni/bin /var/lib/kubelet
sha256sum --quiet -c - <<'E'
@digests@
E
install -m 755 @programs@ $slot/bin/
install -m 755 @runc@ $slot/bin/runc
tar -xzf @containerd@ -C $slot
tar -xzf @cni@ -C $slot/cni
cat >$slot/etc/containerd.toml <<'E'
@containerd-config@
E
cat >$slot/etc/kubelet.json <<'E'
@kubelet-config@
E
ln -sfn by-hand /opt/unbounded/node/current
for plugin in $slot/cni/*; do ln -sfn /opt/unbounded/node/current/cni/${plugin##*/} /opt/cni/bin/; done
cat >/etc/systemd/system/by-hand-containerd.service <<'E'
[Service]
Environment=PATH=/opt/unbounded/node/current/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/opt/unbounded/node/current/bin/containerd --config /opt/unbounded/node/current/etc/containerd.toml
Type=notify
Delegate=yes
KillMode=process
Restart=always
[Install]
WantedBy=multi-user.target
E
cat >/etc/systemd/system/by-hand-kubelet.service <<'E'
[Unit]
After=by-hand-containerd.service
Wants=by-hand-containerd.service
[Service]
Environment=PATH=/opt/unbounded/node/current/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/opt/unbounded/node/current/bin/kubelet --config /opt/unbounded/node/current/etc/kubelet.json \
  --kubeconfig /var/lib/kubelet/kubeconfig --bootstrap-kubeconfig /etc/kubernetes/bootstrap-kubeconfig \
  --cert-dir /var/lib/kubelet/pki --node-ip @address@ --hostname-override @name@
Restart=always
[Install]
WantedBy=multi-user.target
E
sync -f $slot
systemctl daemon-reload
systemctl enable -q by-hand-containerd by-hand-kubelet
systemctl start by-hand-containerd
for image in @images@; do $slot/bin/ctr -n k8s.io images import $image >/dev/null; done
systemctl start by-hand-kubelet
until busybox wget -qO- http://127.0.0.1:10248/healthz 2>/dev/null | grep -q ok; do sleep 0.02; done
until [ -s /var/lib/kubelet/pki/kubelet-client-current.pem ]; do sleep 0.02; done
