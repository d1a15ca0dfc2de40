//! Objects that a cluster of the lab starts with.

use serde_json::{Value, json};

/// The group of the lab's bootstrap tokens.
pub(crate) const BOOTSTRAPPERS: &str = "system:bootstrappers:lab";

/// A bootstrap token to make.
#[derive(Clone, Debug, Default)]
pub struct Token {
    /// It is good until this time (RFC 3339); without it, forever.
    pub expiration: Option<String>,
    /// It does not authenticate: `usage-bootstrap-authentication` is not set.
    pub unusable: bool,
    /// It is in no group that may ask for a node's certificate.
    pub without_rights: bool,
}

/// The secret of a bootstrap token.
pub(crate) fn token_object(id: &str, secret: &str, token: &Token) -> Value {
    let mut data = json!({"token-id": id, "token-secret": secret});
    if !token.unusable {
        data["usage-bootstrap-authentication"] = "true".into();
    }
    if !token.without_rights {
        data["auth-extra-groups"] = BOOTSTRAPPERS.into();
    }
    if let Some(expiration) = &token.expiration {
        data["expiration"] = expiration.as_str().into();
    }
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"}, "stringData": data,
    })
}

/// A role of the cluster for a group.
pub(crate) fn binding(name: &str, role: &str, group: &str) -> Value {
    let api = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": group, "apiGroup": api}],
    })
}
