//! Everything that the agent asks of a Kubernetes API server. Touches the network and reads the few files that hold
//! credentials and names; changes nothing on the host.
//!
//! - Before a host is changed, [`preflight()`] finds out whether it can join, and a [`problem::JoinProblem`] says in words
//!   why not. [`identity`] and [`kubelet`] look at what the host already has of a cluster.
//! - After kubelet has joined, a [`node::NodeClient`] sees the own Node through kubelet's credentials, waits for it to be
//!   Ready and changes its labels; [`csr`] says what a signing request waits for.
//!
//! All of it goes through [`names`] (host names without the C library), [`tls`] (rustls with aws-lc-rs, the cluster's CA
//! alone) and [`api`] (a deadline for each call, no retries of the library's own).

pub mod address;
pub mod api;
pub mod csr;
pub mod identity;
pub mod kubelet;
pub mod names;
pub mod node;
pub mod preflight;
pub mod problem;
pub mod ready;
#[cfg(test)]
mod testing;
pub mod tls;
mod wire;

pub use address::ServerAddress;
pub use api::{ApiProblem, Credentials};
pub use identity::{CertificateState, SameCluster, client_certificate_state, same_cluster};
pub use kubelet::{KubeletIdentity, kubelet_identity};
pub use names::Names;
pub use node::{NodeClient, NodeMachine};
pub use preflight::{ApiServerFacts, ApiServerProbe, preflight};
pub use problem::JoinProblem;
pub use ready::{ReadyOutcome, WaitReady};
pub use tls::install_crypto_provider;
