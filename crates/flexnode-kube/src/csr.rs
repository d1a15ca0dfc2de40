//! Kubelet's certificate signing request, seen with the bootstrap token: what it waits for, in words.
//!
//! The ClusterRole system:node-bootstrapper allows the token to create, get, list and watch requests.

use crate::api::{ApiProblem, bounded};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::ListParams;
use kube::client::Client;
use std::time::Duration;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

/// The signer of kubelet's client certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The command that lists requests, for where they may not be read.
pub const LIST_COMMAND: &str = "kubectl get certificatesigningrequests";

/// Where the node's request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// Kubelet has sent none yet.
    None,
    /// Nobody has approved it.
    Pending {
        /// Its name.
        name: String,
        /// How long it has waited.
        age: SignedDuration,
    },
    /// It was refused.
    Denied {
        /// Its name.
        name: String,
        /// Why, as far as it was said.
        message: String,
    },
    /// The signer could not sign it.
    Failed {
        /// Its name.
        name: String,
        /// Why.
        message: String,
    },
    /// Approved; the certificate is not there yet.
    Approved {
        /// Its name.
        name: String,
    },
    /// The certificate is there.
    Issued {
        /// Its name.
        name: String,
    },
}

impl RequestState {
    /// What a person should know and do; `None` when nothing has to be done.
    pub fn advice(&self) -> Option<String> {
        match self {
            RequestState::None | RequestState::Issued { .. } => None,
            RequestState::Pending { name, age } => Some(format!(
                "the certificate signing request {name} of this node waits for approval for {} s: \
                 `kubectl certificate approve {name}`",
                age.as_secs()
            )),
            RequestState::Denied { name, message } => Some(format!(
                "the certificate signing request {name} of this node was denied ({message}): remove it with \
                 `kubectl delete csr {name}`, approve the next one"
            )),
            RequestState::Failed { name, message } => {
                Some(format!("the certificate signing request {name} of this node could not be signed ({message})"))
            }
            RequestState::Approved { name } => Some(format!(
                "the certificate signing request {name} is approved and not signed: does kube-controller-manager run \
                 with --cluster-signing-cert-file?"
            )),
        }
    }
}

/// Finds the newest request of the node.
pub async fn node_request(
    client: &Client,
    node: &str,
    now: Timestamp,
    deadline: Duration,
) -> Result<RequestState, ApiProblem> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let selector = ListParams::default().fields(&format!("spec.signerName={SIGNER}")).limit(500);
    let list = bounded("certificate signing requests", deadline, requests.list(&selector)).await?;
    Ok(newest(&list.items, node, now))
}

fn newest(requests: &[CertificateSigningRequest], node: &str, now: Timestamp) -> RequestState {
    let created = |r: &CertificateSigningRequest| r.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let ours = requests.iter().filter(|r| is_for(r, node)).max_by_key(|r| created(r));
    let Some(request) = ours else { return RequestState::None };
    let name = request.metadata.name.clone().unwrap_or_default();
    let status = request.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|c| c.type_ == kind);
    let words = |kind: &str| {
        condition(kind)
            .map(|c| c.message.clone().or_else(|| c.reason.clone()).unwrap_or_else(|| "no reason given".into()))
    };
    if let Some(message) = words("Denied") {
        RequestState::Denied { name, message }
    } else if let Some(message) = words("Failed") {
        RequestState::Failed { name, message }
    } else if status.certificate.is_some_and(|c| !c.0.is_empty()) {
        RequestState::Issued { name }
    } else if condition("Approved").is_some() {
        RequestState::Approved { name }
    } else {
        let age = created(request).map_or(SignedDuration::ZERO, |created| now.duration_since(created));
        RequestState::Pending { name, age }
    }
}

/// Whether the request asks for the identity `system:node:NODE`.
fn is_for(request: &CertificateSigningRequest, node: &str) -> bool {
    if request.spec.signer_name != SIGNER {
        return false;
    }
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(&request.spec.request.0) else { return false };
    let Ok((_, asked)) = X509CertificationRequest::from_der(&pem.contents) else { return false };
    let wanted = format!("system:node:{node}");
    let names = asked.certification_request_info.subject.iter_common_name();
    names.filter_map(|name| name.as_str().ok()).any(|name| name == wanted)
}

#[cfg(test)]
#[path = "csr_tests.rs"]
pub(crate) mod tests;
