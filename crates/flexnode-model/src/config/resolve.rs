//! The values of a configuration together: defaults, and what one value means for another.

use super::problem::{ConfigErrors, Problem, Warning};
use super::types::Config;
use super::values::{self, Fault, quantity};
use crate::{CgroupLayout, ContainerdGoal, Difference, Isolation, Join, KubeletGoal, MachineGoal, Secret};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

const SANDBOX_IMAGE: &str = "mcr.microsoft.com/oss/kubernetes/pause:3.9";
const MAX_PODS: u32 = 110;
const DNS_SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10));
/// The cloud's node controller must not delete this Node when it is NotReady.
const MANAGED: (&str, &str) = ("kubernetes.azure.com/managed", "false");
/// Names the machine; left out where its name is no value of a label.
const MACHINE: &str = "unbounded-cloud.io/machine";

/// What a goal takes from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// The kernel's host name.
    pub host_name: String,
    /// Memory of the machine in bytes.
    pub memory_bytes: u64,
    /// Processors that are online.
    pub cpus: usize,
    /// The layout of control groups.
    pub cgroups: CgroupLayout,
    /// `amd64` or `arm64`.
    pub arch: String,
}

/// `agent.logLevel`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What happens.
    #[default]
    Info,
    /// What may go wrong.
    Warning,
    /// What went wrong.
    Error,
}

impl Config {
    /// The log level; `info` when none is set.
    pub fn log_level(&self) -> LogLevel {
        self.agent.log_level.as_deref().and_then(|text| log_level(text).ok()).unwrap_or_default()
    }

    /// Where the daemon serves metrics beside its socket.
    pub fn metrics_listen(&self) -> Option<SocketAddr> {
        self.agent.metrics_listen.as_deref().and_then(|text| loopback(text).ok())
    }

    /// The goal of this machine and what joining needs, after defaults.
    ///
    /// `artifacts` of the goal is empty: the digests come from the source. `isolation` is `none` when the configuration
    /// does not name one; a caller that has a recorded state puts that in.
    pub fn goal(&self, facts: &HostFacts) -> Result<(MachineGoal, Join, Vec<Warning>), ConfigErrors> {
        let mut out = Collector::default();
        let result = resolve(self, Some(facts), &mut out);
        match (ConfigErrors::from_problems(out.problems), result) {
            (None, Some((goal, join))) => Ok((goal, join, out.warnings)),
            (Some(errors), _) => Err(errors),
            // Every way to `None` told its problem; this is for the type alone.
            (None, None) => Err(ConfigErrors::one(Problem::missing(".", "write a configuration"))),
        }
    }
}

impl Config {
    /// Where the artifacts of a Kubernetes version (without `v`) come from: the file's source with that version in the place
    /// of its template.
    pub fn source_of(&self, kubernetes_version: &str) -> Option<PathBuf> {
        let template = self.bootstrap.offline_artifacts.source.as_deref()?;
        values::source::resolve(template, kubernetes_version).ok()
    }

    /// What differs between the goal that is applied and `told`, the one that this file leads to on this host, without what
    /// only follows: from another setting that differs, or from what the artifact source holds. Nobody wrote it, and with the
    /// other settings edited it is the same. Where nothing else differs, it is told: then the host or the source has changed.
    pub fn differences(&self, facts: &HostFacts, applied: &MachineGoal, told: &MachineGoal) -> Vec<Difference> {
        let all = applied.differences(told);
        let mut like = told.clone();
        like.artifacts.clone_from(&applied.artifacts);
        let is_open = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
        for (written, mine, theirs) in [
            (&self.components.containerd, &mut like.containerd_version, &applied.containerd_version),
            (&self.components.runc, &mut like.runc_version, &applied.runc_version),
            (&self.networking.cni_version, &mut like.cni_version, &applied.cni_version),
        ] {
            if is_open(written) {
                mine.clone_from(theirs);
            }
        }
        let computed = computed_reservation(applied.kubelet.max_pods, facts);
        for (resource, amount) in &applied.kubelet.kube_reserved {
            let written = self.node.kubelet.kube_reserved.contains_key(resource);
            if !written && computed.get(resource) == Some(amount) {
                like.kubelet.kube_reserved.insert(resource.clone(), amount.clone());
            }
        }
        let written = applied.differences(&like);
        if written.is_empty() { all } else { written }
    }
}

/// All that is wrong with the values; with what depends on the host when its facts are given.
pub(super) fn problems(config: &Config, facts: Option<&HostFacts>) -> Vec<Problem> {
    let mut out = Collector::default();
    let _ = resolve(config, facts, &mut out);
    out.problems
}

#[derive(Default)]
struct Collector {
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl Collector {
    fn fault(&mut self, path: impl Into<String>, fault: Fault) {
        self.problems.push(Problem::new(path, fault.what, fault.fix));
    }
    fn check<T>(&mut self, path: &str, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.fault(path, fault)).ok()
    }
    fn optional<T>(&mut self, path: &str, text: Option<&String>, f: impl Fn(&str) -> Result<T, Fault>) -> Option<T> {
        text.filter(|text| !text.trim().is_empty()).and_then(|text| self.check(path, f(text)))
    }
    fn required<T>(
        &mut self,
        path: &str,
        text: Option<&String>,
        fix: &str,
        f: impl Fn(&str) -> Result<T, Fault>,
    ) -> Option<T> {
        if text.is_none_or(|text| text.trim().is_empty()) {
            self.problems.push(Problem::missing(path, fix));
            return None;
        }
        self.optional(path, text, f)
    }
}

fn resolve(config: &Config, facts: Option<&HostFacts>, out: &mut Collector) -> Option<(MachineGoal, Join)> {
    let Config { components, networking, node, agent, .. } = config;
    let kubernetes = out.required(
        "components.kubernetes",
        components.kubernetes.as_ref(),
        "write the version of Kubernetes, for example \"1.36.3\"",
        values::version::version,
    );
    let api_server = out.required(
        "node.kubelet.clusterFQDN",
        node.kubelet.cluster_fqdn.as_ref(),
        "write the API server, as host:port",
        values::url::normalise,
    );
    let ca_pem = out.required(
        "node.kubelet.caCertData",
        node.kubelet.ca_cert_data.as_ref(),
        "write the cluster's certificate authority: base64 -w0 < ca.crt",
        values::ca::decode,
    );
    let containerd = out.optional("components.containerd", components.containerd.as_ref(), values::version::version);
    let runc = out.optional("components.runc", components.runc.as_ref(), values::version::version);
    let cni = out.optional("networking.cniVersion", networking.cni_version.as_ref(), values::version::version);
    let sandbox = out.optional("components.sandboxImage", components.sandbox_image.as_ref(), values::version::image);
    let node_ips = out.optional("node.kubelet.nodeIP", node.kubelet.node_ip.as_ref(), values::address::node_ips);
    let dns = networking.dns_service_ip.as_ref();
    let dns = out.optional("networking.dnsServiceIP", dns, values::address::one_or_pair).unwrap_or(vec![DNS_SERVICE]);
    out.optional("agent.logLevel", agent.log_level.as_ref(), log_level);
    out.optional("agent.metricsListen", agent.metrics_listen.as_ref(), loopback);
    families(node_ips.as_deref().unwrap_or_default(), &dns, out);
    if node.isolation == Some(Isolation::Nspawn) {
        let what = "the isolation nspawn is not supported yet";
        out.problems.push(Problem::new("node.isolation", what, "write none, or remove the key"));
    }
    for (path, fault) in values::overlay::containerd(&node.containerd.config) {
        out.fault(below("node.containerd.config", &path), fault);
    }
    let name = node_name(config, facts, out);
    let kubelet = kubelet_goal(config, facts, out);
    let join = join(config, kubernetes.as_deref(), name.as_deref(), out);
    // Told together with the rest; from here on all of it has to be there.
    let goal = MachineGoal {
        version: MachineGoal::VERSION,
        isolation: node.isolation.unwrap_or(Isolation::None),
        node_name: name?,
        node_ips: node_ips.unwrap_or_default(),
        api_server: api_server?,
        ca_pem: ca_pem?,
        dns_service_ips: dns,
        kubernetes_version: kubernetes?,
        containerd_version: containerd,
        runc_version: runc,
        cni_version: cni,
        kubelet: kubelet?,
        containerd: ContainerdGoal {
            sandbox_image: sandbox.unwrap_or_else(|| SANDBOX_IMAGE.into()),
            config: node.containerd.config.clone(),
        },
        cgroups: facts?.cgroups,
        artifacts: BTreeMap::new(),
    };
    Some((goal, join?))
}

fn below(parent: &str, path: &str) -> String {
    if path.starts_with('[') { format!("{parent}{path}") } else { format!("{parent}.{path}") }
}

/// Pods ask the DNS service from their own address: it has to be of a family that the node has.
fn families(node_ips: &[IpAddr], dns: &[IpAddr], out: &mut Collector) {
    let shared = node_ips.iter().any(|ip| dns.iter().any(|dns| dns.is_ipv4() == ip.is_ipv4()));
    if !node_ips.is_empty() && !shared {
        let message = format!("{} is of another family than the node's addresses; pods may not reach it", dns[0]);
        out.warnings.push(Warning::new("networking.dnsServiceIP", message));
    }
}

fn log_level(text: &str) -> Result<LogLevel, Fault> {
    match text.trim().to_ascii_lowercase().as_str() {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warning" => Ok(LogLevel::Warning),
        "error" => Ok(LogLevel::Error),
        _ => Err(Fault::new(format!("{text:?} is no log level"), "write debug, info, warning or error")),
    }
}

/// An address that only programs on this host reach.
fn loopback(text: &str) -> Result<SocketAddr, Fault> {
    let fix = "write a loopback address with a port: 127.0.0.1:9464";
    let address: SocketAddr =
        text.trim().parse().map_err(|_| Fault::new(format!("{text:?} is no address with a port"), fix))?;
    if !address.ip().is_loopback() {
        return Err(Fault::new(format!("{address} can be reached from outside of this host"), fix));
    }
    Ok(address)
}

fn node_name(config: &Config, facts: Option<&HostFacts>, out: &mut Collector) -> Option<String> {
    let path = "agent.nodeName";
    match (&config.agent.node_name, facts) {
        (Some(name), _) => out.check(path, values::node_name::explicit(name)),
        (None, Some(facts)) => {
            let name = out.check(path, values::node_name::from_host(&facts.host_name))?;
            if name != facts.host_name.trim() {
                let message = format!("the host name {:?} is written {name:?} for the Node", facts.host_name.trim());
                out.warnings.push(Warning::new(path, message));
            }
            Some(name)
        }
        (None, None) => None,
    }
}

fn kubelet_goal(config: &Config, facts: Option<&HostFacts>, out: &mut Collector) -> Option<KubeletGoal> {
    let kubelet = &config.node.kubelet;
    let (high, low) = thresholds(config, out);
    let max_pods = match config.node.max_pods {
        None | Some(0) => MAX_PODS,
        Some(pods) => pods,
    };
    for (path, fault) in values::overlay::kubelet(&kubelet.config) {
        out.fault(below("node.kubelet.config", &path), fault);
    }
    let zero = BTreeMap::from(["cpu", "memory"].map(|name| (name.to_owned(), "0".to_owned())));
    let system = reservation("node.kubelet.systemReserved", &kubelet.system_reserved, zero, out);
    let computed = facts.map(|facts| computed_reservation(max_pods, facts));
    let kube = reservation("node.kubelet.kubeReserved", &kubelet.kube_reserved, computed.unwrap_or_default(), out);
    let facts = facts?;
    for (resource, there) in
        [("memory", u128::from(facts.memory_bytes) * 1000), ("cpu", u128::try_from(facts.cpus).unwrap_or(1) * 1000)]
    {
        let of = |map: &BTreeMap<String, String>| map.get(resource).and_then(|q| quantity::parse(q).ok()).unwrap_or(0);
        if of(&system).saturating_add(of(&kube)) >= there && there > 0 {
            let path = format!("node.kubelet.kubeReserved.{resource}");
            let what = "together with systemReserved it is all that the host has";
            out.problems.push(Problem::new(path, what, "write less, so that something is left for pods"));
        }
    }
    Some(KubeletGoal {
        max_pods,
        system_reserved: system,
        kube_reserved: kube,
        image_gc_high_threshold: high,
        image_gc_low_threshold: low,
        verbosity: kubelet.verbosity.unwrap_or(2),
        config: kubelet.config.clone(),
    })
}

/// `kubeReserved` where the file does not tell it.
fn computed_reservation(max_pods: u32, facts: &HostFacts) -> BTreeMap<String, String> {
    let memory = quantity::default_memory_mib(max_pods, facts.memory_bytes);
    let cpu = quantity::default_cpu_milli(facts.cpus);
    BTreeMap::from([("cpu".to_owned(), format!("{cpu}m")), ("memory".to_owned(), format!("{memory}Mi"))])
}

fn thresholds(config: &Config, out: &mut Collector) -> (u8, u8) {
    let kubelet = &config.node.kubelet;
    let high = kubelet.image_gc_high_threshold.unwrap_or(85);
    let low = kubelet.image_gc_low_threshold.unwrap_or(80);
    if low >= high {
        let (path, fix) = match (kubelet.image_gc_high_threshold, kubelet.image_gc_low_threshold) {
            (Some(_), None) => {
                ("node.kubelet.imageGCHighThreshold", "write more than 80, or set imageGCLowThreshold too")
            }
            _ => ("node.kubelet.imageGCLowThreshold", "write less than imageGCHighThreshold"),
        };
        let what = format!("the low threshold {low} is not below the high threshold {high}");
        out.problems.push(Problem::new(path, what, fix));
    }
    (high, low)
}

/// What is reserved by resource: what was written, over the defaults.
fn reservation(
    path: &str,
    written: &BTreeMap<String, String>,
    mut defaults: BTreeMap<String, String>,
    out: &mut Collector,
) -> BTreeMap<String, String> {
    for (resource, amount) in written {
        let path = format!("{path}.{resource}");
        if !quantity::RESERVABLE.contains(&resource.as_str()) {
            let fix = format!("write one of: {}", quantity::RESERVABLE.join(", "));
            out.problems.push(Problem::new(path, "kubelet cannot reserve this resource", fix));
        } else if out.check(&path, quantity::parse(amount)).is_some() {
            defaults.insert(resource.clone(), amount.trim().to_owned());
        }
    }
    defaults
}

fn join(config: &Config, version: Option<&str>, name: Option<&str>, out: &mut Collector) -> Option<Join> {
    let token = config.azure.bootstrap_token.token.clone().filter(|token| !token.expose().trim().is_empty());
    let token = token.and_then(|token| out.check("azure.bootstrapToken.token", bootstrap_token(&token)));
    for (i, path) in config.bootstrap.allow_unverified.iter().enumerate() {
        out.check(&format!("bootstrap.allowUnverified[{i}]"), values::source::artifact(path));
    }
    // Without a version the template is still checked, with one that stands for it.
    let source = out.required(
        "bootstrap.offlineArtifacts.source",
        config.bootstrap.offline_artifacts.source.as_ref(),
        "write the absolute path of a bundle directory",
        |text| values::source::resolve(text, version.unwrap_or("0.0.0")),
    );
    let taints = taints(&config.node.taints, out);
    Some(Join {
        token,
        labels: labels(&config.node.labels, name, out),
        taints,
        source: source?,
        allow_unverified: config.bootstrap.allow_unverified.clone(),
    })
}

/// `id.secret`; see the Kubernetes documentation "Authenticating with bootstrap tokens". The error never shows it.
fn bootstrap_token(token: &Secret) -> Result<Secret, Fault> {
    let text = token.expose().trim();
    let part =
        |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    match text.split_once('.') {
        Some((id, secret)) if part(id, 6) && part(secret, 16) => Ok(Secret::new(text)),
        _ => {
            let fix = "write 6 and 16 lower-case letters and digits with a dot between them: kubeadm token create";
            Err(Fault::new("it is no bootstrap token (the value is not shown)", fix))
        }
    }
}

fn labels(written: &BTreeMap<String, String>, name: Option<&str>, out: &mut Collector) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in written {
        let path = super::json::join("node.labels", key);
        let good = out.check(&path, values::labels::key(key)).is_some();
        if out.check(&path, values::labels::value(value)).is_some() && good {
            labels.insert(key.clone(), value.clone());
        }
    }
    let mut force = |key: &str, value: &str| {
        if labels.insert(key.to_owned(), value.to_owned()).is_some_and(|old| old != value) {
            let message = format!("the agent sets this label to {value:?}");
            out.warnings.push(Warning::new(super::json::join("node.labels", key), message));
        }
    };
    force(MANAGED.0, MANAGED.1);
    if let Some(name) = name.filter(|name| values::labels::value(name).is_ok()) {
        force(MACHINE, name);
    }
    labels
}

fn taints(written: &[String], out: &mut Collector) -> Vec<String> {
    let mut seen = Vec::new();
    let mut taints = Vec::new();
    for (i, text) in written.iter().enumerate() {
        let path = format!("node.taints[{i}]");
        let Some(identity) = out.check(&path, values::labels::taint(text.trim())) else { continue };
        if seen.contains(&identity) {
            let what = format!("{:?} with this effect is there twice", identity.0);
            out.problems.push(Problem::new(path, what, "keep one of them"));
        } else {
            seen.push(identity);
            taints.push(text.trim().to_owned());
        }
    }
    taints
}
