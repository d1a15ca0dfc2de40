//! Whether an upgrade may be run, decided from what is applied, what is wanted, and what failed before.

use super::BY_PERSON;
use flexnode_model::{MachineGoal, State};
use std::cmp::Ordering;

/// What is to be said before an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is run.
    Go,
    /// A person has to say yes to this.
    Confirm(String),
    /// It is not run: why, and what to do.
    Refuse(String, String),
}

/// Decides from what is applied, what is wanted, and what failed before.
pub fn decide(applied: &MachineGoal, goal: &MachineGoal, state: &State, retry: bool) -> Decision {
    let joins = [
        ("the API server", applied.api_server != goal.api_server),
        ("the cluster's CA", applied.ca_pem != goal.ca_pem),
        ("the name of the Node", applied.node_name != goal.node_name),
        ("the isolation", applied.isolation != goal.isolation),
    ];
    if let Some((what, _)) = joins.into_iter().find(|(_, differs)| *differs) {
        let text = format!("{what} is another one than the node has joined with, which no upgrade changes");
        return Decision::Refuse(text, "aks-flex-node reset, then aks-flex-node start".into());
    }
    let fingerprint = goal.fingerprint();
    if fingerprint == applied.fingerprint() {
        return Decision::Go;
    }
    match state.failure_of(&fingerprint) {
        Some(_) if retry => return Decision::Go,
        Some(failed) if failed.reason == BY_PERSON => {
            return Decision::Confirm(format!("a person went back from this goal at {}. Go to it again?", failed.when));
        }
        Some(failed) => {
            let text = format!("this goal failed at {} and is not tried again: {}", failed.when, failed.reason);
            return Decision::Refuse(text, "aks-flex-node upgrade --retry, or change the configuration".into());
        }
        None => {}
    }
    let (old, new) = (&applied.kubernetes_version, &goal.kubernetes_version);
    if compare(new, old) == Ordering::Less {
        return Decision::Confirm(format!("this goes back from Kubernetes {old} to {new}. Go on?"));
    }
    Decision::Go
}

/// Compares versions number by number; a pre-release is older than its release.
fn compare(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| {
        let (numbers, rest) = text.split_once('-').map_or((text, None), |(n, rest)| (n, Some(rest.to_owned())));
        let numbers: Vec<u64> = numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        (numbers, rest)
    };
    let ((a, a_pre), (b, b_pre)) = (parts(a), parts(b));
    a.cmp(&b).then_with(|| match (a_pre, b_pre) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) => a.cmp(&b),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::tests::goal;
    use flexnode_model::state::FailedGoal;

    fn failed(goal: &MachineGoal, reason: &str) -> State {
        let mut state = State::default();
        let when = jiff::Timestamp::UNIX_EPOCH;
        state.remember_failure(FailedGoal { goal: goal.fingerprint(), reason: reason.into(), when });
        state
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (a, b, order) in [
            ("1.36.2", "1.36.10", Ordering::Less),
            ("1.36.3", "1.36.3", Ordering::Equal),
            ("1.37.0", "1.36.9", Ordering::Greater),
            ("1.37.0-rc.1", "1.37.0", Ordering::Less),
            ("1.37.0-rc.1", "1.36.9", Ordering::Greater),
        ] {
            assert_eq!(compare(a, b), order, "{a} {b}");
            assert_eq!(compare(b, a), order.reverse());
        }
    }

    #[test]
    fn what_has_to_be_confirmed_or_refused_is() {
        let (old, new) = (goal("1.36.2"), goal("1.36.3"));
        let none = State::default();
        let confirms = |decision: Decision| assert!(matches!(decision, Decision::Confirm(_)), "{decision:?}");
        let refuses = |decision: Decision| assert!(matches!(decision, Decision::Refuse(..)), "{decision:?}");
        assert_eq!(decide(&old, &new, &none, false), Decision::Go);
        assert_eq!(decide(&old, &old, &none, false), Decision::Go);
        confirms(decide(&new, &old, &none, false));
        refuses(decide(&old, &new, &failed(&new, "kubelet ended"), false));
        assert_eq!(decide(&old, &new, &failed(&new, "kubelet ended"), true), Decision::Go);
        confirms(decide(&old, &new, &failed(&new, BY_PERSON), false));
        let changed = MachineGoal { node_ips: vec![[10, 0, 0, 9].into()], ..new.clone() };
        assert_eq!(decide(&old, &changed, &failed(&new, "kubelet ended"), false), Decision::Go);
        for other in [
            MachineGoal { api_server: "https://other:443".into(), ..new.clone() },
            MachineGoal { ca_pem: "other".into(), ..new.clone() },
            MachineGoal { node_name: "other".into(), ..new.clone() },
        ] {
            refuses(decide(&old, &other, &none, true));
        }
    }
}
