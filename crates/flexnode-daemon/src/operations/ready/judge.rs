//! Decisions over what was seen of a version that was just started.

use super::{PATIENCE, SILENCE};
use flexnode_kube::ApiProblem;
use flexnode_status::node::NodeView;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// What was known of the Node before the stop.
#[derive(Clone, Debug, PartialEq)]
pub enum Before {
    /// It was seen.
    Seen(Box<NodeView>),
    /// There was none, or it could not be seen.
    Unknown,
}

/// What the Node says of the version that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    /// It is as good as it was.
    Good,
    /// Not yet, and why.
    NotYet(String),
    /// The API server says nothing about the node.
    Silent(String),
}

/// What runs on this machine now, as far as the Node has to tell of it and not of what ran before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// The Kubernetes version that is meant, without `v`.
    pub kubernetes: String,
    /// This boot, as the kernel names it; empty when it is not known.
    pub boot_id: String,
    /// When kubelet's unit became active; `None` when it is not known.
    pub since: Option<Timestamp>,
}

/// kubelet may report a moment before systemd calls its unit active, and in whole seconds.
const REPORTS_EARLY: SignedDuration = SignedDuration::from_secs(5);

/// Judges the Node.
///
/// The cluster goes on calling a node Ready for up to a minute after its machine went down. So it has to tell of this boot;
/// and where no earlier heartbeat is known to compare with (an operation that was taken up), it has to be one of the kubelet
/// that runs.
pub fn judge_node(before: &Before, running: &Running, now: Result<Option<&NodeView>, &ApiProblem>) -> NodeVerdict {
    let kubernetes = &running.kubernetes;
    let seen = match before {
        Before::Seen(view) => Some(view),
        Before::Unknown => None,
    };
    let now = match now {
        Err(problem) if problem.is_silence() || seen.is_none() => return NodeVerdict::Silent(problem.to_string()),
        Err(problem) => return NodeVerdict::NotYet(problem.to_string()),
        Ok(None) if seen.is_none() => return NodeVerdict::Silent("there is no Node of this name".into()),
        Ok(None) => return NodeVerdict::NotYet("the Node is gone".into()),
        Ok(Some(view)) => view,
    };
    if now.is_of_another_boot(&running.boot_id) {
        return NodeVerdict::NotYet("kubelet has not reported since the boot".into());
    }
    let reported = match (seen, running.since) {
        (Some(before), _) => now.heartbeat().is_some() && now.heartbeat() != before.heartbeat(),
        (None, Some(since)) => now.heartbeat().is_some_and(|beat| beat.duration_since(since) >= -REPORTS_EARLY),
        (None, None) => true,
    };
    if !reported {
        return NodeVerdict::NotYet("kubelet has not reported since its start".into());
    }
    if now.kubelet_version.trim_start_matches('v') != kubernetes.as_str() {
        return NodeVerdict::NotYet(format!("kubelet reports version {}, not {kubernetes}", now.kubelet_version));
    }
    let Some(why) = now.why_not_ready() else { return NodeVerdict::Good };
    let was_ready = seen.is_some_and(|view| view.is_ready());
    let as_before = seen.is_some_and(|before| before.why_not_ready().as_ref() == Some(&why));
    if !was_ready && (as_before || now.waits_only_for_network()) {
        return NodeVerdict::Good;
    }
    NodeVerdict::NotYet(why)
}

/// The main process of each unit, and how often systemd had to start it.
pub type Processes = Vec<(String, u32, u32)>;

/// What is wrong with the units since the first look; nothing when they are the same.
pub fn changed_since(first: &Processes, now: &Processes) -> Option<String> {
    first.iter().zip(now).find_map(|((unit, pid, restarts), (_, pid_now, restarts_now))| {
        if *pid_now == 0 {
            Some(format!("{unit} does not run any more"))
        } else if pid != pid_now || restarts != restarts_now {
            Some(format!("{unit} did not stay up: its process {pid} was replaced by {pid_now}"))
        } else {
            None
        }
    })
}

/// Whether the wait is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is ready.
    Ready,
    /// It goes on; what it waits for.
    Waits(String),
    /// It will not be ready.
    Failed(String),
}

/// Decides from what was seen after `elapsed`.
pub fn decide(probation: Duration, elapsed: Duration, local: Result<(), String>, node: NodeVerdict) -> Progress {
    let why = match (local, node) {
        (Err(why), _) | (Ok(()), NodeVerdict::NotYet(why)) => why,
        (Ok(()), NodeVerdict::Silent(why)) if elapsed < SILENCE.max(probation) => {
            return Progress::Waits(format!("the API server tells nothing: {why}"));
        }
        (Ok(()), NodeVerdict::Good | NodeVerdict::Silent(_)) if elapsed < probation => {
            return Progress::Waits("watching the processes of the new version".into());
        }
        (Ok(()), NodeVerdict::Good | NodeVerdict::Silent(_)) => return Progress::Ready,
    };
    if elapsed < PATIENCE.max(probation) { Progress::Waits(why) } else { Progress::Failed(why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_status::node::ReadyCondition;

    fn node(status: Option<bool>, message: &str, second: i64) -> NodeView {
        let heartbeat = Some(jiff::Timestamp::from_second(second).unwrap());
        let ready =
            ReadyCondition { status, reason: "Kubelet".into(), message: message.into(), heartbeat, since: None };
        NodeView { ready: Some(ready), kubelet_version: "v1.36.3".into(), ..NodeView::default() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "calls are shorter so")]
    fn judge(before: Option<NodeView>, now: Result<Option<NodeView>, ApiProblem>) -> NodeVerdict {
        let before = before.map_or(Before::Unknown, |view| Before::Seen(Box::new(view)));
        let running = Running { kubernetes: "1.36.3".into(), ..Running::default() };
        judge_node(&before, &running, now.as_ref().map(Option::as_ref))
    }

    #[test]
    fn a_node_may_not_become_worse_and_need_not_become_better() {
        let good = |verdict| assert_eq!(verdict, NodeVerdict::Good);
        let not_yet = |verdict: NodeVerdict| assert!(matches!(verdict, NodeVerdict::NotYet(_)), "{verdict:?}");
        let (ready, sick) = (|s| node(Some(true), "", s), |s| node(Some(false), "PLEG is not healthy", s));
        good(judge(Some(ready(1)), Ok(Some(ready(2)))));
        good(judge(Some(sick(1)), Ok(Some(ready(2)))));
        good(judge(Some(sick(1)), Ok(Some(sick(2)))));
        good(judge(None, Ok(Some(ready(2)))));
        not_yet(judge(Some(ready(1)), Ok(Some(ready(1)))));
        not_yet(judge(Some(ready(1)), Ok(Some(sick(2)))));
        not_yet(judge(Some(sick(1)), Ok(Some(node(Some(false), "other", 2)))));
        not_yet(judge(None, Ok(Some(sick(2)))));
        not_yet(judge(Some(ready(1)), Ok(None)));
        let other = NodeView { kubelet_version: "v1.36.2".into(), ..ready(2) };
        not_yet(judge(Some(ready(1)), Ok(Some(other))));
    }

    #[test]
    fn a_ready_from_before_the_boot_or_from_another_kubelet_is_none() {
        let not_yet = |verdict: NodeVerdict| assert!(matches!(verdict, NodeVerdict::NotYet(_)), "{verdict:?}");
        let at = |second| Timestamp::from_second(second).unwrap();
        let running = Running { kubernetes: "1.36.3".into(), boot_id: "this".into(), since: Some(at(100)) };
        let of = |boot: &str, second| NodeView { boot_id: boot.into(), ..node(Some(true), "", second) };
        let before = Before::Seen(Box::new(of("other", 90)));
        let judge = |before: &Before, view: NodeView| judge_node(before, &running, Ok(Some(&view)));
        for unknown in [&Before::Unknown, &before] {
            // Whatever its time, a heartbeat that came with another boot is no sign of life.
            not_yet(judge(unknown, of("other", 99)));
            not_yet(judge(unknown, of("other", 101)));
            assert_eq!(judge(unknown, of("this", 101)), NodeVerdict::Good);
            assert_eq!(judge(unknown, of("", 101)), NodeVerdict::Good, "one that does not tell is judged by its time");
        }
        not_yet(judge(&Before::Unknown, of("this", 60)));
        assert_eq!(judge(&Before::Unknown, of("this", 98)), NodeVerdict::Good, "whole seconds, and a moment early");
        // A clock that was set back harms nothing where there is a heartbeat to compare with.
        assert_eq!(judge(&before, of("this", 60)), NodeVerdict::Good);
        let silent = NodeView { ready: None, ..of("this", 0) };
        not_yet(judge(&Before::Unknown, silent));
    }

    #[test]
    fn trouble_of_the_api_server_is_no_verdict_on_the_node() {
        let ready = || Some(node(Some(true), "", 1));
        let silent = |verdict: NodeVerdict| assert!(matches!(verdict, NodeVerdict::Silent(_)), "{verdict:?}");
        for status in [429, 500, 503] {
            silent(judge(ready(), Err(ApiProblem::NotWell { status, message: String::new() })));
        }
        silent(judge(ready(), Err(ApiProblem::Connection("refused".into()))));
        silent(judge(None, Err(ApiProblem::Unauthorized)));
        silent(judge(None, Ok(None)));
        assert!(matches!(judge(ready(), Err(ApiProblem::Unauthorized)), NodeVerdict::NotYet(_)));
    }

    #[test]
    fn the_end_of_the_wait_is_decided_by_time_and_both_witnesses() {
        let seconds = Duration::from_secs;
        let at = |s, local: Result<(), &str>, node| decide(seconds(30), seconds(s), local.map_err(str::to_owned), node);
        let (silent, not_yet) = (|| NodeVerdict::Silent("away".into()), || NodeVerdict::NotYet("not reported".into()));
        let waits = |progress: Progress| assert!(matches!(progress, Progress::Waits(_)), "{progress:?}");
        waits(at(0, Ok(()), NodeVerdict::Good));
        waits(at(29, Ok(()), NodeVerdict::Good));
        assert_eq!(at(30, Ok(()), NodeVerdict::Good), Progress::Ready);
        waits(at(59, Ok(()), silent()));
        assert_eq!(at(60, Ok(()), silent()), Progress::Ready);
        waits(at(179, Ok(()), not_yet()));
        assert_eq!(at(180, Ok(()), not_yet()), Progress::Failed("not reported".into()));
        waits(at(60, Err("no healthz"), NodeVerdict::Good));
        assert_eq!(at(180, Err("no healthz"), silent()), Progress::Failed("no healthz".into()));
    }

    #[test]
    fn a_process_that_was_replaced_is_seen() {
        let of = |pid, restarts| vec![("a".to_owned(), 7, 0), ("b".to_owned(), pid, restarts)];
        assert_eq!(changed_since(&of(8, 0), &of(8, 0)), None);
        assert!(changed_since(&of(8, 0), &of(9, 0)).unwrap().contains("did not stay up"));
        assert!(changed_since(&of(8, 0), &of(8, 1)).is_some());
        assert!(changed_since(&of(8, 0), &of(0, 0)).unwrap().contains("does not run"));
    }
}
