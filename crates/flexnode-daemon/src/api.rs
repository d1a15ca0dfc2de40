//! Asking the API server before the first change, as kubelet will.

use crate::start::{Cluster, Prepared};
use flexnode_host::{Fs, Host};
use flexnode_kube::preflight::{self, ApiServerProbe};
use flexnode_kube::tls::Identity;
use flexnode_kube::{JoinProblem, KubeletIdentity, kubelet_identity};
use flexnode_model::{Join, MachineGoal};
use flexnode_ops::{Outcome, StepContext, StepError};
use flexnode_stack::places::KUBECONFIG;
use jiff::Timestamp;
use std::path::Path;

/// How long the answer may take.
pub const DEADLINE: std::time::Duration = preflight::DEADLINE;

/// What kubelet would show the API server.
#[derive(Clone, Debug)]
pub enum Credential {
    /// Its own certificate, which is valid now; `None` where its kubeconfig authenticates in another way.
    Certificate(Option<Identity>),
    /// None that is valid: it has to ask for one with the bootstrap token. The text says why.
    Token(String),
}

/// Whether kubelet has a valid client certificate of its own. Tokens live a day: a node that has joined does without.
pub fn credential(fs: &dyn Fs, now: Timestamp) -> Credential {
    let why = match kubelet_identity(fs, Path::new(KUBECONFIG), now) {
        KubeletIdentity::Valid { identity, .. } => return Credential::Certificate(Some(identity)),
        KubeletIdentity::Other => return Credential::Certificate(None),
        KubeletIdentity::Absent => "kubelet has not joined yet".into(),
        KubeletIdentity::Expired { ended } => format!("kubelet's client certificate expired at {ended}"),
        KubeletIdentity::NotYet { begins } => format!("kubelet's client certificate is valid from {begins} only"),
        KubeletIdentity::Missing { path } => format!("kubelet's {} is not there", path.display()),
        KubeletIdentity::Unusable { reason } => reason,
    };
    Credential::Token(why)
}

/// What is asked: with the certificate where there is a valid one, with the token otherwise.
pub fn probe(goal: &MachineGoal, join: &Join, credential: Credential) -> Result<ApiServerProbe, StepError> {
    let (token, identity) = match credential {
        Credential::Certificate(identity) => (None, identity),
        Credential::Token(why) => match &join.token {
            Some(token) => (Some(token.clone()), None),
            None => {
                return Err(StepError::new(format!("a bootstrap token is needed: {why}"))
                    .hint("put one into azure.bootstrapToken.token; `kubeadm token create` makes one"));
            }
        },
    };
    Ok(ApiServerProbe { url: goal.api_server.clone(), ca_pem: goal.ca_pem.clone(), token, identity })
}

/// Reaches the API server: name, connection, TLS by the given CA, credential accepted, allowed to create CSRs.
pub async fn check(
    host: &Host,
    cluster: &dyn Cluster,
    prepared: &Prepared,
    cx: &StepContext,
) -> Result<Outcome, StepError> {
    let credential = credential(host.fs.as_ref(), host.clock.now());
    let probe = probe(&prepared.goal, &prepared.join, credential)?;
    let facts = cluster.preflight(&probe, DEADLINE).await.map_err(|problem| told(&problem))?;
    if let Some(version) = &facts.version
        && let Some(text) = skew(version, &prepared.goal.kubernetes_version)
    {
        cx.note(&text);
    }
    if let Some(skew) = facts.clock_skew {
        cx.note(&format!("this host's clock is {skew:#} off the API server's"));
    }
    Ok(Outcome::Unchanged)
}

fn told(problem: &JoinProblem) -> StepError {
    let hint = problem.hint();
    StepError::new(problem.to_string()).hint(hint)
}

/// What Kubernetes's version skew policy says against this pair: kubelet may not be newer than the API server, nor more
/// than three minor versions older.
fn skew(server: &str, kubelet: &str) -> Option<String> {
    let (server_minor, kubelet_minor) = (minor(server)?, minor(kubelet)?);
    if kubelet_minor > server_minor {
        return Some(format!(
            "kubelet {kubelet} is newer than the API server {server}, which Kubernetes does not support"
        ));
    }
    (server_minor - kubelet_minor > 3).then(|| {
        format!("kubelet {kubelet} is more than three minor versions older than the API server {server}, which Kubernetes does not support")
    })
}

fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major: u32 = parts.next()?.parse().ok()?;
    let minor: u32 = parts.next()?.trim_end_matches('+').parse().ok()?;
    (major == 1).then_some(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_policy() {
        for (server, kubelet, told) in [
            ("1.36.3", "1.36.3", false),
            ("1.36.3", "1.33.0", false),
            ("1.36.3", "1.32.9", true),
            ("1.35.0", "1.36.0", true),
            ("v1.36+.3", "1.36.0", false),
            ("2.0.0", "1.36.0", false),
            ("main", "1.36.0", false),
        ] {
            assert_eq!(skew(server, kubelet).is_some(), told, "{server} {kubelet}");
        }
    }
}
