//! The TCP ports that a node's programs listen on.

use flexnode_model::MachineGoal;
use serde_json::{Map, Value};
use std::net::{IpAddr, Ipv4Addr};

/// kubelet's server, which the API server connects to (`port` of KubeletConfiguration).
pub const KUBELET_PORT: u16 = 10250;
/// kubelet's health endpoint, on loopback.
pub const KUBELET_HEALTHZ_PORT: u16 = 10248;

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A port that has to be free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Who listens there.
    pub program: &'static str,
    /// The address that it binds.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// Every port that is known before the node runs. The streams of `kubectl exec` go over a port that containerd picks, unless
/// the configuration names one; kube-proxy and other pods of the cluster are not the agent's.
pub fn of(goal: &MachineGoal) -> Vec<Port> {
    let kubelet = |address, port| Port { program: "kubelet", address, port };
    let number =
        |key: &str| insensitive(&goal.kubelet.config, key).and_then(Value::as_u64).and_then(|n| n.try_into().ok());
    let mut ports = vec![
        kubelet(ANY, number("port").filter(|port| *port != 0).unwrap_or(KUBELET_PORT)),
        kubelet(LOOPBACK, KUBELET_HEALTHZ_PORT),
    ];
    ports.extend(number("readOnlyPort").filter(|port| *port != 0).map(|port| kubelet(ANY, port)));
    ports.extend(containerd(&goal.containerd.config));
    ports
}

/// kubelet reads its keys whatever their case.
fn insensitive<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
}

/// Ports that the settings name: the server of streams, metrics, debugging over TCP.
fn containerd(config: &Map<String, Value>) -> Vec<Port> {
    let config = Value::Object(config.clone());
    let text = |path: &str| config.pointer(path).and_then(Value::as_str);
    let mut ports = Vec::new();
    for plugin in ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"] {
        let at = |key: &str| format!("/plugins/{plugin}/{key}");
        // A string in containerd's configuration; 0 lets the kernel pick one.
        let port = text(&at("stream_server_port")).and_then(|port| port.parse().ok()).filter(|port| *port != 0);
        let address = text(&at("stream_server_address")).and_then(|address| address.parse().ok()).unwrap_or(LOOPBACK);
        ports.extend(port.map(|port| Port { program: "containerd", address, port }));
    }
    for key in ["/metrics/address", "/debug/address", "/grpc/tcp_address", "/ttrpc/tcp_address"] {
        let socket = text(key).and_then(|text| text.parse::<std::net::SocketAddr>().ok());
        ports.extend(socket.map(|at| Port { program: "containerd", address: at.ip(), port: at.port() }));
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(kubelet: Value, containerd: Value) -> Vec<String> {
        let mut goal = crate::preflight::tests::goal();
        goal.kubelet.config = serde_json::from_value(kubelet).unwrap();
        goal.containerd.config = serde_json::from_value(containerd).unwrap();
        of(&goal).iter().map(|port| format!("{} {} {}", port.program, port.address, port.port)).collect()
    }

    #[test]
    fn the_ports_are_those_of_the_configuration() {
        assert_eq!(told(json!({}), json!({})), ["kubelet 0.0.0.0 10250", "kubelet 127.0.0.1 10248"]);
        let kubelet = json!({"Port": 10350, "readOnlyPort": 10255});
        let plugins = json!({
            "io.containerd.grpc.v1.cri": {"stream_server_port": "0"},
            "io.containerd.cri.v1.runtime": {"stream_server_port": "10010", "stream_server_address": "0.0.0.0"},
        });
        let containerd = json!({
            "plugins": plugins, "metrics": {"address": "127.0.0.1:1338"}, "debug": {"address": "/run/containerd/debug.sock"},
        });
        assert_eq!(
            told(kubelet, containerd),
            [
                "kubelet 0.0.0.0 10350",
                "kubelet 127.0.0.1 10248",
                "kubelet 0.0.0.0 10255",
                "containerd 0.0.0.0 10010",
                "containerd 127.0.0.1 1338"
            ]
        );
    }
}
