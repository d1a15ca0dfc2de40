//! Every operation and step, before and after, crashed, failed and hung; then a new start of the agent; then one checker
//! that knows nothing of the step. The steps are those that the agent plans: a new one is met without a change here.
//!
//! `FLEXNODE_SEED` chooses the points, `FLEXNODE_POINTS` only those that contain a text.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Mutex;
use system_tests::crash::Series;
use system_tests::points::{self, Point};
use system_tests::{Cluster, NEW, Node, OLD, all, report};

const BUNDLES: [(system_tests::Version, &str); 2] = [(OLD, "/srv/old"), (NEW, "/srv/new")];
/// Operations on a node that runs.
const OPERATIONS: [&str; 5] = ["upgrade", "rollback", "restart", "stop", "start-node"];
/// More failures than these say nothing new.
const ENOUGH: usize = 5;

/// Those that run this time.
fn chosen(all_points: Vec<Point>, seed: u64) -> Vec<Point> {
    match std::env::var("FLEXNODE_POINTS") {
        Ok(text) if !text.is_empty() => {
            all_points.into_iter().filter(|point| point.to_string().contains(&text)).collect()
        }
        _ => points::choose(&all_points, seed, all()),
    }
}

#[test]
#[ignore = "needs root and the lab's programs"]
fn a_running_node_survives_every_point_of_every_operation() {
    let seed = points::seed();
    let cluster = Cluster::new();
    let nodes = ["crash-a", "crash-b"].map(|name| cluster.node_with(name, &BUNDLES, true));
    let queue: Mutex<Option<VecDeque<Point>>> = Mutex::new(None);
    let (failures, done) = (Mutex::new(Vec::new()), Mutex::new(0_usize));
    std::thread::scope(|scope| {
        for (number, node) in nodes.iter().enumerate() {
            let (queue, failures, done) = (&queue, &failures, &done);
            scope.spawn(move || work(node, seed + number as u64, queue, failures, done));
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "seed {seed}:\n{}", failures.join("\n\n"));
    assert!(done.into_inner().unwrap() > 0);
}

fn work(
    node: &Node<'_>,
    seed: u64,
    queue: &Mutex<Option<VecDeque<Point>>>,
    failures: &Mutex<Vec<String>>,
    done: &Mutex<usize>,
) {
    let mut series = Series::new(node, BUNDLES, seed);
    loop {
        let next = queue
            .lock()
            .unwrap()
            .get_or_insert_with(|| {
                let all: Vec<Point> = OPERATIONS.iter().flat_map(|name| points::of_plan(&series.plan(name))).collect();
                let of = all.len();
                let chosen = chosen(all, points::seed());
                report(&format!("crash suite, running node: seed {}, {} of {of} points", points::seed(), chosen.len()));
                chosen.into()
            })
            .pop_front();
        let Some(point) = next else { return };
        let begin = std::time::Instant::now();
        let result = series.meet(&point);
        *done.lock().unwrap() += 1;
        if std::env::var_os("FLEXNODE_VERBOSE").is_some() {
            let mark = if result.is_ok() { "ok" } else { "FAILED" };
            let _ = writeln!(
                std::io::stderr(),
                "{:6.2} s {} {point} {mark}",
                begin.elapsed().as_secs_f32(),
                node.host.name()
            );
        }
        if let Err(failure) = result {
            let _ = writeln!(std::io::stderr(), "{failure}");
            let mut failures = failures.lock().unwrap();
            failures.push(failure);
            if failures.len() >= ENOUGH {
                return;
            }
            drop(failures);
            series.mend();
        }
    }
}
