//! Links, namespaces and chains.

use super::plan::{facts, record};
use crate::reset::facts::Facts;
use crate::reset::plan::{Plan, Stage, plan};
use flexnode_host::Route;
use flexnode_model::record::ChainBefore;

const NS: &str = "cni-0f4b6c1e-9a3d-4a57-8b0e-5d2f7c6e1a90";
const NS2: &str = "cni-1f4b6c1e-9a3d-4a57-8b0e-5d2f7c6e1a90";
const ID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn removed(plan: &Plan) -> Vec<String> {
    plan.of(Stage::Network).map(ToString::to_string).collect()
}

fn kept(plan: &Plan) -> Vec<&str> {
    plan.kept.iter().map(|kept| kept.what.as_str()).collect()
}

fn rules(facts: &mut Facts, table: &str, rules: &[&str]) {
    facts.rules.extend(rules.iter().map(|rule| (table.to_owned(), (*rule).to_owned())));
}

fn names(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// C092: network objects stay after a reset.
#[test]
fn what_was_there_before_stays_and_what_came_with_the_node_goes() {
    let mut record = record(&[]);
    let existed = record.existed.as_mut().unwrap();
    existed.links = names(&["lo", "eth0", "cni0"]);
    existed.namespaces = names(&[NS2]);
    let mut facts = facts(Some(record));
    facts.links = names(&["lo", "eth0", "cni0", "cbr0", "flannel.1", "br-mine", "veth1", "veth2"]);
    facts.namespaces = names(&[NS, NS2, "netns-other", "cni-x"]);
    facts.evidence.links = names(&["veth1", "cni0"]);
    facts.evidence.bridges = names(&["br-mine"]);
    facts.evidence.conf = Some("/etc/cni/net.d/10-mine.conflist".into());
    let found = plan(&facts);
    assert_eq!(
        removed(&found),
        [
            format!("the network namespace {NS}"),
            "the network link br-mine".into(),
            "the network link cbr0".into(),
            "the network link flannel.1".into(),
            "the network link veth1".into()
        ]
    );
    assert_eq!(kept(&found), ["the network link cni0"]);
    // The bridge of a configuration that was there before is another program's.
    let before = &mut facts.record.as_mut().unwrap().existed.as_mut().unwrap().paths;
    before.insert("/etc/cni/net.d/10-mine.conflist".into());
    assert!(!removed(&plan(&facts)).contains(&"the network link br-mine".to_owned()));
}

#[test]
fn without_a_record_only_what_is_known_of_the_pods_goes_and_the_rest_is_told() {
    let mut facts = facts(None);
    facts.links = names(&["cni0", "veth1", "vxlan0", "eth0"]);
    facts.namespaces = names(&[NS, NS2]);
    facts.evidence.links = names(&["veth1"]);
    facts.evidence.namespaces = names(&[NS]);
    rules(&mut facts, "ip/filter", &[":KUBE-FIREWALL - [0:0]", "-A INPUT -j KUBE-FIREWALL"]);
    let plan = plan(&facts);
    assert_eq!(removed(&plan), [format!("the network namespace {NS}"), "the network link veth1".into()]);
    assert_eq!(
        kept(&plan),
        [
            format!("the network namespace {NS2}").as_str(),
            "the network link cni0",
            "the network link vxlan0",
            "the chain KUBE-FIREWALL in ip/filter"
        ]
    );
}

#[test]
fn a_bridge_that_other_containers_use_stays() {
    for record in [None, Some(record(&[]))] {
        let mut facts = facts(record);
        facts.links = names(&["cni0"]);
        facts.evidence.links = names(&["cni0"]);
        facts.evidence.foreign_links = names(&["cni0"]);
        let plan = plan(&facts);
        assert_eq!(removed(&plan), [""; 0]);
        assert_eq!(plan.kept[0].why, "containers of another program use it");
    }
}

#[test]
fn chains_go_with_the_rules_that_lead_to_them_and_in_an_order_that_the_kernel_takes() {
    let mut facts = facts(Some(record(&[])));
    rules(
        &mut facts,
        "ip/nat",
        &[
            ":PREROUTING ACCEPT [0:0]",
            ":KUBE-A - [0:0]",
            ":KUBE-B - [0:0]",
            "-A PREROUTING -j KUBE-B",
            "-A PREROUTING -m comment --comment \"not a -j KUBE-A \\\" -j KUBE-B\" -j MINE",
            "-A KUBE-B -j KUBE-A",
            "-A MINE -j RETURN",
        ],
    );
    assert_eq!(
        removed(&plan(&facts)),
        ["the rule -A PREROUTING -j KUBE-B in ip/nat", "the chain KUBE-B in ip/nat", "the chain KUBE-A in ip/nat"]
    );
}

/// What the CNI plugins bridge and portmap make for a container.
fn container(facts: &mut Facts, chain: &str, id: &str) {
    let masquerade = format!(
        "-A POSTROUTING -s 10.1.0.5/32 -m comment --comment \"name: \\\"n\\\" id: \\\"{id}\\\"\" -j CNI-{chain}"
    );
    let accept =
        format!("-A CNI-{chain} -d 10.1.0.0/24 -m comment --comment \"name: \\\"n\\\" id: \\\"{id}\\\"\" -j ACCEPT");
    let dnat = format!(
        "-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment \"dnat name: \\\"n\\\" id: \\\"{id}\\\"\" -j CNI-DN-{chain}"
    );
    rules(facts, "ip/nat", &[&masquerade, &accept, &dnat]);
    let to = format!("-A CNI-DN-{chain} -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.5:80");
    rules(facts, "ip/nat", &[&format!(":CNI-{chain} - [0:0]"), &format!(":CNI-DN-{chain} - [0:0]"), &to]);
}

const HOSTPORT: &[&str] = &[
    ":CNI-HOSTPORT-DNAT - [0:0]",
    ":CNI-HOSTPORT-MASQ - [0:0]",
    "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
    "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
];

#[test]
fn chains_of_containers_are_told_apart_by_the_container() {
    let mut facts = facts(Some(record(&[])));
    facts.evidence.sandboxes = names(&[ID]);
    rules(&mut facts, "ip/nat", HOSTPORT);
    container(&mut facts, "ours", ID);
    let all = plan(&facts);
    assert_eq!(
        all.removals.iter().filter(|r| r.to_string().starts_with("the chain CNI-")).count(),
        4,
        "{:#?}",
        removed(&all)
    );
    assert_eq!(kept(&all), [""; 0]);
    container(&mut facts, "theirs", OTHER);
    let some = plan(&facts);
    let removed = removed(&some);
    assert!(
        removed.iter().all(|what| !what.contains("theirs") && !what.contains("chain CNI-HOSTPORT-DNAT")),
        "{removed:#?}"
    );
    assert!(removed.contains(&"the chain CNI-ours in ip/nat".to_owned()), "{removed:#?}");
    assert!(removed.contains(&"the chain CNI-DN-ours in ip/nat".to_owned()), "{removed:#?}");
    assert!(
        removed.iter().any(|what| what.starts_with("the rule -A CNI-HOSTPORT-DNAT") && what.contains("CNI-DN-ours"))
    );
    assert!(kept(&some).contains(&"the chain CNI-theirs in ip/nat"));
}

#[test]
fn chains_that_were_there_before_stay() {
    let mut record = record(&[]);
    let chain = |chain: &str| ChainBefore { table: "ip/nat".into(), chain: chain.into() };
    record.existed.as_mut().unwrap().chains = ["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "KUBE-X"].map(chain).into();
    let mut facts = facts(Some(record));
    rules(&mut facts, "ip/nat", HOSTPORT);
    rules(&mut facts, "ip/nat", &[":KUBE-X - [0:0]", "-A PREROUTING -j KUBE-X"]);
    rules(&mut facts, "ip6/nat", &[":KUBE-X - [0:0]"]);
    assert_eq!(removed(&plan(&facts)), ["the chain KUBE-X in ip6/nat"]);
}

#[test]
fn masquerading_by_nft_goes_with_the_pods_and_stays_for_others() {
    const TABLE: &str = "nft/inet/cni_plugins_masquerade";
    let mut facts = facts(Some(record(&[])));
    facts.evidence.sandboxes = names(&[ID]);
    let ours = format!("-A masq_checks handle 5 comment x, net: n, if: eth0, id: {ID}");
    rules(&mut facts, TABLE, &[":masq_checks -", ":postrouting -", "-A postrouting handle 3", &ours]);
    assert_eq!(
        removed(&plan(&facts)),
        [
            format!("the rule {ours} in {TABLE}"),
            format!("the chain postrouting in {TABLE}"),
            format!("the chain masq_checks in {TABLE}")
        ]
    );
    rules(&mut facts, TABLE, &[&format!("-A masq_checks handle 6 comment id: {OTHER}")]);
    assert_eq!(removed(&plan(&facts)), [format!("the rule {ours} in {TABLE}")]);
}

#[test]
fn tables_that_iptables_made_for_the_node_go_when_they_do_nothing() {
    let mut record = record(&[]);
    let mut facts_of = |before: Option<&[&str]>| {
        record.existed.as_mut().unwrap().tables = before.map(names);
        let mut facts = facts(Some(record.clone()));
        facts.idle_tables = names(&["ip/filter", "ip6/nat"]);
        removed(&plan(&facts))
    };
    assert_eq!(facts_of(Some(&["ip6/nat"])), ["the empty table ip/filter"]);
    assert_eq!(facts_of(Some(&[])), ["the empty table ip/filter", "the empty table ip6/nat"]);
    // Nobody looked: they may have been there.
    assert!(facts_of(None).is_empty());
}

#[test]
fn what_kube_proxy_left_goes_by_record_and_is_told_without_one() {
    let left = |record| {
        let mut facts = facts(record);
        rules(&mut facts, "nft/ip/kube-proxy", &[":services -", "-A services handle 4"]);
        rules(&mut facts, "nft/inet/mine", &[":services -"]);
        facts.ip_sets = names(&["KUBE-CLUSTER-IP", "mine"]);
        let route = |line: &str, link: &str| Route { line: line.into(), link: link.into() };
        facts.links = names(&["cni0", "eth0"]);
        facts.routes = vec![
            route("10.1.0.0/16 via 10.0.0.1 dev eth0", "eth0"),
            route("10.244.3.0/24 via 10.0.0.7 dev eth0", "eth0"),
            route("10.244.4.0/24 dev cni0", "cni0"),
        ];
        facts
    };
    let new = |ip_sets: Option<&[&str]>, chains: &[ChainBefore]| {
        let mut record = record(&[]);
        let existed = record.existed.as_mut().unwrap();
        existed.ip_sets = ip_sets.map(names);
        existed.routes = Some(names(&["10.1.0.0/16 via 10.0.0.1 dev eth0"]));
        existed.chains = chains.iter().cloned().collect();
        plan(&left(Some(record)))
    };
    let all = new(Some(&["mine"]), &[]);
    assert_eq!(
        removed(&all),
        ["the network link cni0", "the table nft/ip/kube-proxy", "the set of addresses KUBE-CLUSTER-IP"]
    );
    assert_eq!(kept(&all), ["the route 10.244.3.0/24 via 10.0.0.7 dev eth0"]);
    // They were there before, or nobody looked at that part.
    let before = ChainBefore { table: "nft/ip/kube-proxy".into(), chain: "services".into() };
    let some = new(None, &[before]);
    assert_eq!(removed(&some), ["the network link cni0"]);
    assert_eq!(kept(&some)[..2], ["the table nft/ip/kube-proxy", "the set of addresses KUBE-CLUSTER-IP"]);
    let none = plan(&left(None));
    assert!(removed(&none).is_empty(), "{:?}", removed(&none));
    assert!(kept(&none).contains(&"the table nft/ip/kube-proxy") && !kept(&none).iter().any(|k| k.contains("route")));
}
