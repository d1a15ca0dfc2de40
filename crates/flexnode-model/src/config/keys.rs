//! Keys that the configuration of the original agent has beyond those of [`super::types::Config`].

use super::problem::Warning;
use serde_json::{Map, Value};

/// Keys (with all below them) that are known and not supported yet: they warn, and do nothing.
pub(super) const LATER: &[&str] = &[
    "azure.subscriptionId",
    "azure.tenantId",
    "azure.cloud",
    "azure.resourceManagerEndpoint",
    "azure.targetCluster",
    "azure.targetAgentPoolName",
    "azure.servicePrincipal",
    "azure.managedIdentity",
    "azure.arc",
    "agent.logDir",
    "agent.machineClient",
    "agent.machineReconcileInterval",
    "agent.requireMachineRegistration",
    "agent.machineOperationMode",
    "agent.kubeconfigData",
    "components.gantry",
    "bootstrap.ociImage",
    "bootstrap.additionalHostDevices",
    "bootstrap.additionalHostMounts",
    "bootstrap.additionalRequiredServices",
    "networking.localDNS",
    "node.kubelet.kubeconfigData",
    "node.kubelet.imageCredentialProvider",
    "npd",
    "hostRouting",
];

/// Old keys and where their values belong now.
const LEGACY: &[(&str, &str)] = &[
    ("kubernetes.version", "components.kubernetes"),
    ("containerd.version", "components.containerd"),
    ("runc.version", "components.runc"),
    ("cni.version", "networking.cniVersion"),
    ("node.kubelet.dnsServiceIP", "networking.dnsServiceIP"),
    ("node.kubelet.serverURL", "node.kubelet.clusterFQDN"),
];

/// Moves the values of old keys to where they belong; a value that is already there wins.
pub(super) fn adapt(document: &mut Value, warnings: &mut Vec<Warning>) {
    for (old, new) in LEGACY {
        let Some(value) = take(document, old) else { continue };
        let message = if is_set(document, new) {
            format!("this old key is ignored because {new} is set; remove it")
        } else if put(document, new, value) {
            format!("this old key is read as {new}; write that instead")
        } else {
            continue; // the way there is blocked by a value of a wrong type, which is told
        };
        warnings.push(Warning::new(*old, message));
    }
    // What only held an old key is gone with it.
    if let Value::Object(root) = document {
        for section in ["kubernetes", "containerd", "runc", "cni"] {
            if root.get(section).is_some_and(|v| v.as_object().is_some_and(Map::is_empty)) {
                root.remove(section);
            }
        }
    }
}

fn take(document: &mut Value, path: &str) -> Option<Value> {
    let (parents, last) = path.rsplit_once('.')?;
    let parent = parents.split('.').try_fold(document, |value, key| value.get_mut(key))?;
    parent.as_object_mut()?.remove(last)
}

fn is_set(document: &Value, path: &str) -> bool {
    path.split('.').try_fold(document, |value, key| value.get(key)).is_some_and(|value| !value.is_null())
}

fn put(document: &mut Value, path: &str, value: Value) -> bool {
    let mut at = document;
    for key in path.split('.') {
        let Value::Object(map) = at else { return false };
        at = map.entry(key).or_insert(Value::Null);
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    *at = value;
    true
}
