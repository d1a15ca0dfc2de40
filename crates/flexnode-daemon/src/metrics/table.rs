//! The metrics as one table: what is served and what is documented come from it.

use super::Counters;
use flexnode_model::Snapshot;
use flexnode_model::snapshot::{Disk, Reading, Reason, Space, UnitReport, Verdict};
use jiff::Timestamp;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What metrics are made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// The newest snapshot; `None` while nothing was seen.
    pub snapshot: Option<Arc<Snapshot>>,
    /// What happened.
    pub counters: Counters,
    /// Requests to the API server.
    pub requests: u64,
}

/// Values of one metric: those of its labels, and the number.
type Samples = Vec<(Vec<String>, f64)>;

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, with its unit, without the `_total` that a counter gets.
    pub name: &'static str,
    /// What happened (counter), or what is true now (gauge).
    pub is_counter: bool,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it says, for a person.
    pub help: &'static str,
    samples: fn(&Source) -> Samples,
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    samples: fn(&Source) -> Samples,
) -> Metric {
    Metric { name, is_counter: false, labels, help, samples }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    samples: fn(&Source) -> Samples,
) -> Metric {
    Metric { name, is_counter: true, labels, help, samples }
}

/// All metrics.
pub const METRICS: &[Metric] = &[
    gauge("flexnode_build_info", &["version"], "Always 1; the version of the agent that runs", |s| {
        seen(s, |n| vec![(vec![n.agent_version.clone()], 1.0)])
    }),
    gauge("flexnode_verdict", &["verdict"], "1 for how the node is: healthy, degraded or not_a_node", |s| {
        seen(s, |n| Verdict::ALL.iter().map(|v| (vec![verdict(*v).to_owned()], truth(*v == n.verdict))).collect())
    }),
    gauge(
        "flexnode_deviation",
        &["reason"],
        "1 for each reason by which the node is not as it should be, else 0",
        |s| {
            seen(s, |n| {
                let is_there = |reason: Reason| n.deviations.iter().any(|deviation| deviation.reason == reason);
                Reason::ALL.iter().map(|reason| (vec![reason.as_str().to_owned()], truth(is_there(*reason)))).collect()
            })
        },
    ),
    gauge(
        "flexnode_state_since_timestamp_seconds",
        &[],
        "Since when verdict and first reason are what they are",
        |s| seen(s, |n| one(n.since.map(seconds))),
    ),
    gauge("flexnode_snapshot_timestamp_seconds", &[], "When the node was looked at last", |s| {
        seen(s, |n| one(Some(seconds(n.at))))
    }),
    gauge("flexnode_stopped_by_person", &[], "1 while a person has the node stopped", |s| {
        seen(s, |n| one(Some(truth(n.stopped_by_person))))
    }),
    gauge(
        "flexnode_up_to_date",
        &[],
        "1 when the node runs what its configuration says, 0 when not; absent: unknown",
        |s| seen(s, |n| one(n.goal.is_up_to_date().map(truth))),
    ),
    gauge("flexnode_failed_goals", &[], "Goals that failed and are not tried again by themselves", |s| {
        seen(s, |n| one(Some(count(n.goal.failed.len()))))
    }),
    gauge("flexnode_operation_open", &["operation"], "1 for an operation that has not ended, else 0", |s| {
        seen(s, |n| {
            let open = n.operation.as_ref().map(|open| operation(&open.operation));
            OPERATIONS.iter().map(|name| (vec![(*name).to_owned()], truth(open == Some(*name)))).collect()
        })
    }),
    gauge("flexnode_unit_active", &["unit"], "1 while systemd calls the unit active", |s| {
        units(s, |unit| Some(truth(unit.active == "active" || unit.active == "reloading")))
    }),
    gauge("flexnode_unit_restarts", &["unit"], "How often systemd started the unit again by itself", |s| {
        units(s, |unit| Some(f64::from(unit.restarts)))
    }),
    gauge("flexnode_unit_state_since_timestamp_seconds", &["unit"], "Since when the unit is in its state", |s| {
        units(s, |unit| unit.since.map(seconds))
    }),
    gauge("flexnode_unit_resident_memory_bytes", &["unit"], "Memory of the unit's main process in RAM", |s| {
        units(s, |unit| unit.resident_bytes.map(large))
    }),
    gauge("flexnode_kubelet_healthy", &[], "1 when kubelet says that it is healthy, else 0", |s| {
        seen(s, |n| one(Some(truth(n.kubelet_healthy.known() == Some(&true)))))
    }),
    gauge(
        "flexnode_runtime_ready",
        &[],
        "1 when the container runtime says that it is ready; absent: it did not answer",
        |s| seen(s, |n| one(n.runtime.known().map(|runtime| truth(runtime.ready)))),
    ),
    gauge("flexnode_network_ready", &[], "1 when the runtime has a network plugin; absent: it did not answer", |s| {
        seen(s, |n| one(n.runtime.known().map(|runtime| truth(runtime.network_ready))))
    }),
    gauge("flexnode_node_ready", &[], "1 when the cluster calls the Node Ready, 0 when not; absent: unknown", |s| {
        seen(s, |n| one(n.ready.map(truth)))
    }),
    gauge(
        "flexnode_certificate_expiry_timestamp_seconds",
        &["certificate"],
        "When a certificate of the node ends",
        |s| {
            seen(s, |n| {
                let all = n.certificates.known().map(Vec::as_slice).unwrap_or_default();
                let end =
                    |validity: &Reading<flexnode_model::snapshot::Validity>| Some(seconds(validity.known()?.not_after));
                all.iter().filter_map(|c| Some((vec![c.name.clone()], end(&c.validity)?))).collect()
            })
        },
    ),
    gauge("flexnode_filesystem_size_bytes", &["path"], "Size of a file system that the node fills", |s| {
        disks(s, |space| space.total_bytes)
    }),
    gauge("flexnode_filesystem_free_bytes", &["path"], "What is free in it for programs that are not root's", |s| {
        disks(s, |space| space.free_bytes)
    }),
    gauge("flexnode_filesystem_inodes", &["path"], "Inodes of a file system that the node fills", |s| {
        disks(s, |space| space.total_inodes)
    }),
    gauge("flexnode_filesystem_free_inodes", &["path"], "Free inodes of it", |s| disks(s, |space| space.free_inodes)),
    gauge(
        "flexnode_clock_skew_seconds",
        &[],
        "How far this host's clock is ahead of the API server's; absent: unknown",
        |s| {
            seen(s, |n| {
                let skew = n.clock.known().and_then(|skew| i32::try_from(skew.seconds).ok());
                one(skew.map(f64::from))
            })
        },
    ),
    gauge("flexnode_reboot_required", &[], "1 when the distribution asks for a reboot", |s| {
        seen(s, |n| one(n.reboot.known().map(|reboot| truth(reboot.needed))))
    }),
    counter("flexnode_looks", &["part"], "Looks at a part of the node", |s| {
        flexnode_status::observe::Part::ALL
            .iter()
            .map(|part| (vec![part.name().to_owned()], large(s.counters.looks.get(part).copied().unwrap_or(0))))
            .collect()
    }),
    counter("flexnode_status_writes", &["result"], "Writings of the status file", |s| {
        results(s.counters.writes, s.counters.write_failures)
    }),
    counter("flexnode_mended", &["reason"], "What the agent mended by itself, by what it found", |s| {
        MENDED
            .iter()
            .map(|reason| {
                let count = s.counters.mended.get(reason).copied().unwrap_or(0);
                (vec![reason.as_str().to_owned()], large(count))
            })
            .collect()
    }),
    counter("flexnode_resumed_operations", &["result"], "Interrupted operations that the agent took up", |s| {
        results(s.counters.resumed, s.counters.resume_failures)
    }),
    counter("flexnode_condition_changes", &[], "Changes of the agent's conditions on its Node", |s| {
        one(Some(large(s.counters.conditions)))
    }),
    counter("flexnode_events", &[], "Events about the Node", |s| one(Some(large(s.counters.events)))),
    counter("flexnode_api_requests", &[], "Requests to the API server", |s| one(Some(large(s.requests)))),
];

/// The operations that there are; others are `other`.
const OPERATIONS: [&str; 8] = ["start", "upgrade", "rollback", "restart", "stop", "start-node", "reset", "other"];
/// What can be mended.
const MENDED: [Reason; 3] = [Reason::UnitFailed, Reason::UnitStopped, Reason::KubeletStateDamaged];

fn operation(name: &str) -> &'static str {
    OPERATIONS.iter().find(|known| **known == name).copied().unwrap_or("other")
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Healthy => "healthy",
        Verdict::Degraded => "degraded",
        Verdict::NotANode => "not_a_node",
    }
}

fn seen(source: &Source, samples: impl FnOnce(&Snapshot) -> Samples) -> Samples {
    source.snapshot.as_deref().map(samples).unwrap_or_default()
}

fn units(source: &Source, value: impl Fn(&UnitReport) -> Option<f64>) -> Samples {
    seen(source, |n| n.units.iter().filter_map(|unit| Some((vec![unit.unit.clone()], value(unit)?))).collect())
}

fn disks(source: &Source, value: impl Fn(&Space) -> u64) -> Samples {
    let of = |disk: &Disk| Some((vec![disk.path.clone()], large(value(disk.space.known()?))));
    seen(source, |n| n.disks.iter().filter_map(of).collect())
}

fn one(value: Option<f64>) -> Samples {
    value.map(|value| (Vec::new(), value)).into_iter().collect()
}

fn results(ok: u64, failed: u64) -> Samples {
    vec![(vec!["success".into()], large(ok)), (vec!["failure".into()], large(failed))]
}

fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

fn count(value: usize) -> f64 {
    large(value as u64)
}

#[expect(clippy::cast_precision_loss, reason = "what is counted stays far below 2^53")]
fn large(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch stay far below 2^53")]
fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}

type Labels = Vec<(&'static str, String)>;

/// The metrics in the text format of OpenMetrics.
pub fn encode(source: &Source) -> String {
    let mut registry = Registry::default();
    for metric in METRICS {
        let labels = |values: Vec<String>| -> Labels { metric.labels.iter().copied().zip(values).collect() };
        if metric.is_counter {
            let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
            for (values, value) in (metric.samples)(source) {
                family.get_or_create(&labels(values)).inc_by(value);
            }
            registry.register(metric.name, metric.help, family);
        } else {
            let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
            for (values, value) in (metric.samples)(source) {
                family.get_or_create(&labels(values)).set(value);
            }
            registry.register(metric.name, metric.help, family);
        }
    }
    let mut out = String::new();
    // Writing into a text does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

/// The reference of all metrics, in Markdown.
pub fn reference() -> String {
    let mut out = String::from(
        "# Metrics\n\nGenerated from the code by `cargo xtask docs`. The daemon serves them in the text format of OpenMetrics on the \
         Unix\nsocket `/run/aks-flex-node/metrics.sock` (`aks-flex-node metrics` prints them), and on a loopback address when\n\
         `agent.metricsListen` names one: `GET /metrics`, and `GET /healthz`, which answers 200 or 503. Every label has a fixed\nset \
         of values. A metric without a value is absent: what is not known is not 0.\n\n| name | type | labels | what it says |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let (kind, suffix) = if metric.is_counter { ("counter", "_total") } else { ("gauge", "") };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(out, "| `{}{suffix}` | {kind} | {} | {} |", metric.name, labels.join(", "), metric.help);
    }
    out.push_str("\n`reason` is one of:\n\n| reason | meaning |\n|---|---|\n");
    for reason in Reason::ALL {
        let _ = writeln!(out, "| `{}` | {} |", reason.as_str(), reason.sentence());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_model::snapshot::Deviation;
    use std::collections::BTreeSet;

    fn source() -> Source {
        let bytes = include_bytes!("../../../flexnode-model/tests/samples/snapshot-1.json");
        Source { snapshot: Some(Arc::new(Snapshot::decode(bytes).unwrap())), ..Source::default() }
    }

    /// Every sample without its value.
    fn series(text: &str) -> BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
    }

    #[test]
    fn names_have_their_prefix_and_no_second_meaning() {
        let names: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for metric in METRICS {
            assert!(metric.name.starts_with("flexnode_") && !metric.name.ends_with("_total"), "{}", metric.name);
            assert!(!metric.help.is_empty() && !metric.help.contains('|'));
        }
        assert!(reference().contains("| `flexnode_status_writes_total` | counter | `result` |"));
    }

    #[test]
    fn what_is_seen_is_told() {
        let text = encode(&source());
        for line in [
            "flexnode_verdict{verdict=\"degraded\"} 1.0",
            "flexnode_verdict{verdict=\"healthy\"} 0.0",
            "flexnode_deviation{reason=\"NodeNotReady\"} 1.0",
            "flexnode_unit_active{unit=\"unbounded-kubelet.service\"} 1.0",
            "flexnode_looks_total{part=\"units\"} 0.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(series(&encode(&Source::default())).iter().all(|s| !s.contains("verdict")), "nothing was seen yet");
    }

    /// C122: whatever goes wrong and however it is told, there are the same series.
    #[test]
    fn errors_make_no_series() {
        let plain = source();
        let mut snapshot = (*plain.snapshot.clone().unwrap()).clone();
        let before = series(&encode(&plain));
        for n in 0..1000 {
            snapshot.deviations = vec![Deviation::new(Reason::KubeletUnhealthy, format!("error {n}"))];
            if let Some(open) = &mut snapshot.operation {
                open.operation = format!("operation {n}");
            }
            let source = Source { snapshot: Some(Arc::new(snapshot.clone())), ..Source::default() };
            assert_eq!(series(&encode(&source)), before);
        }
    }

    /// C121: nothing stays behind when a state is over.
    #[test]
    fn metrics_follow_the_present_snapshot() {
        let mut source = source();
        let mut snapshot = (*source.snapshot.clone().unwrap()).clone();
        snapshot.deviations.clear();
        snapshot.verdict = Verdict::Healthy;
        source.snapshot = Some(Arc::new(snapshot));
        let text = encode(&source);
        assert!(text.contains("flexnode_deviation{reason=\"NodeNotReady\"} 0.0"), "{text}");
        assert!(text.contains("flexnode_verdict{verdict=\"healthy\"} 1.0"));
    }
}
