//! Places of the node stack, as the stack sees them: the same on a host and in a machine.

/// What kubelet checks clients against: the cluster's CA. Named in the kubelet configuration.
pub const CLIENT_CA: &str = "/etc/kubernetes/pki/apiserver-client-ca.crt";
/// Static pods.
pub const STATIC_PODS: &str = "/etc/kubernetes/manifests";
/// FlexVolume plugins; kubelet makes it.
pub const VOLUME_PLUGINS: &str = "/etc/kubernetes/volumeplugins";
/// What kubelet talks to the API server with; kubelet writes it after TLS bootstrap.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// What kubelet asks for its first certificate with. Holds the token.
pub const BOOTSTRAP_KUBECONFIG: &str = "/var/lib/kubelet/bootstrap-kubeconfig";
/// kubelet's certificates. On a disk that survives a reboot, like the kubeconfig that names them.
pub const CERTIFICATES: &str = "/var/lib/kubelet/pki";
/// kubelet's state.
pub const KUBELET_DIR: &str = "/var/lib/kubelet";
/// Where programs of the stack are installed to; a [`flexnode_isolation::NodeRoot`] maps it.
pub const BIN: &str = "/usr/local/bin";
/// Where CNI plugins are: installed to (mapped by the node root) and looked for by containerd.
pub const CNI_BIN: &str = "/opt/cni/bin";
/// Where the cluster's network plugin puts its configuration.
pub const CNI_CONF: &str = "/etc/cni/net.d";
/// containerd's socket.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// containerd's content.
pub const CONTAINERD_ROOT: &str = "/var/lib/containerd";
/// containerd's run time state.
pub const CONTAINERD_STATE: &str = "/run/containerd";
/// Registry hosts files.
pub const REGISTRY_CONFIG: &str = "/etc/containerd/certs.d";
/// The name servers that the host uses.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The real name servers behind the stub of systemd-resolved.
pub const RESOLVED_RESOLV_CONF: &str = "/run/systemd/resolve/resolv.conf";

/// Names below the slot's configuration directory ([`flexnode_isolation::NodeRoot::config`]).
pub mod config {
    /// The KubeletConfiguration.
    pub const KUBELET: &str = "kubelet/config.yaml";
    /// kubelet's arguments that have no place in the file.
    pub const KUBELET_ENV: &str = "kubelet/env";
    /// containerd's configuration.
    pub const CONTAINERD: &str = "containerd/config.toml";
    /// The goal that all of it was made from.
    pub const GOAL: &str = "goal.json";
}
