//! The names and places that existing hosts and scripts depend on (none.txt, Constants).

/// Agent-owned containerd unit.
pub const UNIT_CONTAINERD: &str = "unbounded-containerd.service";

/// Agent-owned kubelet unit.
pub const UNIT_KUBELET: &str = "unbounded-kubelet.service";

/// The allocation launch check that kubelet requires on an allocation host; see
/// [`render_kubelet_launch_check`](super::render_kubelet_launch_check).
pub const UNIT_KUBELET_LAUNCH_CHECK: &str = "unbounded-kubelet-launch-check.service";

/// Agent-owned CoreDNS unit. LocalDNS needs no machine to run in, so here CoreDNS is a host unit.
pub const UNIT_LOCAL_DNS: &str = "unbounded-localdns.service";

/// The host network unit that every mode shares (dummy interface, NOTRACK rules). Never written by this backend.
pub const UNIT_LOCAL_DNS_NETWORK: &str = "unbounded-localdns-network.service";

/// The containerd configuration that the containerd unit runs with. It is not the distribution's
/// `/etc/containerd/config.toml`, so a file that a host package owns is never written or removed.
pub const CONTAINERD_CONFIG_PATH: &str = "/etc/unbounded/containerd/config.toml";

/// The agent-owned directory that holds versioned artifacts.
pub const DEFAULT_BASE: &str = "/opt/unbounded/node";

/// The kubelet configuration: the same path as in an nspawn machine.
pub const DEFAULT_KUBELET_CONFIG_PATH: &str = "/var/lib/kubelet/config.yaml";

/// Where containerd looks for CNI plugins on the host. It stays the default because cluster add-ons install theirs there.
pub const HOST_CNI_BIN_DIR: &str = "/opt/cni/bin";

/// Where the agent writes its units.
pub const SYSTEMD_DIR: &str = "/etc/systemd/system";

/// The variables with labels and taints that kubelet registers with. Belongs to the node, not to a version; may be absent.
pub const REGISTRATION_ENV_PATH: &str = "/etc/unbounded/kubelet/registration.env";

/// Exit status of the launch check that means: never on this host (`EX_NOPERM` of sysexits.h). Any other failure is tried
/// again.
pub const LAUNCH_CHECK_REFUSED: i32 = 77;

/// The link that selects the active version.
pub(crate) const CURRENT: &str = flexnode_model::slot::CURRENT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_keep_their_values_to_the_letter() {
        assert_eq!(UNIT_CONTAINERD, "unbounded-containerd.service");
        assert_eq!(UNIT_KUBELET, "unbounded-kubelet.service");
        assert_eq!(UNIT_KUBELET_LAUNCH_CHECK, "unbounded-kubelet-launch-check.service");
        assert_eq!(UNIT_LOCAL_DNS, "unbounded-localdns.service");
        assert_eq!(UNIT_LOCAL_DNS_NETWORK, "unbounded-localdns-network.service");
        assert_eq!(CONTAINERD_CONFIG_PATH, "/etc/unbounded/containerd/config.toml");
        assert_eq!(DEFAULT_BASE, "/opt/unbounded/node");
        assert_eq!(DEFAULT_KUBELET_CONFIG_PATH, "/var/lib/kubelet/config.yaml");
        assert_eq!(HOST_CNI_BIN_DIR, "/opt/cni/bin");
        assert_eq!(SYSTEMD_DIR, "/etc/systemd/system");
    }
}
