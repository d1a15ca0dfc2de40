//! Labels and taints of a Node that is registered already. kubelet sets them only when it registers, so later changes are
//! made here: labels by a patch, taints by a person, since kubelet's credentials may not.

use flexnode_status::node::NodeView;
use std::collections::BTreeMap;

/// What kubelet registered with the last time, as far as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints, `key=value:Effect` or `key:Effect`.
    pub taints: Vec<String>,
}

/// The commands that bring the Node's taints to what is wanted; empty when they are. Taints that were never ours stay.
pub fn taint_commands(node: &NodeView, wanted: &[String], before: &[String]) -> Vec<String> {
    let normal = |taint: &str| taint.replace("=:", ":");
    let there: Vec<String> = node.taints.iter().map(|t| normal(t)).collect();
    let wanted: Vec<String> = wanted.iter().map(|t| normal(t)).collect();
    // The value of a taint that is there is changed only with --overwrite; its identity is key and effect.
    let key = |taint: &str| {
        let (left, effect) = taint.rsplit_once(':').unwrap_or((taint, ""));
        let name = left.split_once('=').map_or(left, |(name, _)| name);
        (name.to_string(), effect.to_string())
    };
    let mut commands = Vec::new();
    for taint in wanted.iter().filter(|t| !there.contains(t)) {
        let overwrite = if there.iter().any(|t| key(t) == key(taint)) { " --overwrite" } else { "" };
        commands.push(format!("kubectl taint nodes {} {taint}{overwrite}", node.name));
    }
    for taint in before.iter().map(|t| normal(t)) {
        let gone = !wanted.iter().any(|t| key(t) == key(&taint)) && there.iter().any(|t| key(t) == key(&taint));
        if gone {
            let (name, effect) = key(&taint);
            commands.push(format!("kubectl taint nodes {} {name}:{effect}-", node.name));
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: &[&str]) -> NodeView {
        NodeView { name: "n1".into(), taints: taints.iter().map(ToString::to_string).collect(), ..NodeView::default() }
    }

    fn registered(taints: &[&str]) -> Registered {
        Registered { taints: taints.iter().map(ToString::to_string).collect(), ..Registered::default() }
    }

    #[test]
    fn commands_for_taints() {
        let before = registered(&["gone=x:NoExecute", "kept:NoSchedule"]);
        let view = node(&["gone=x:NoExecute", "kept:NoSchedule", "v=1:NoSchedule", "foreign=z:NoSchedule"]);
        let wanted = ["kept=:NoSchedule".into(), "v=2:NoSchedule".into(), "new=a:NoExecute".into()];
        assert_eq!(
            taint_commands(&view, &wanted, &before.taints),
            [
                "kubectl taint nodes n1 v=2:NoSchedule --overwrite",
                "kubectl taint nodes n1 new=a:NoExecute",
                "kubectl taint nodes n1 gone:NoExecute-",
            ]
        );
        assert!(taint_commands(&view, &["kept:NoSchedule".into()], &[]).is_empty());
    }
}
