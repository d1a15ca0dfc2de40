//! No instant at which pulling the plug leaves a host without a working version: every operation of the agent on a disk
//! that keeps, drops or reorders what was not synced, as POSIX allows ([`flexnode_host::testing::power`]).
//!
//! Each operation is run once and recorded. A case, which is a number, chooses one of them, a moment in it and a disk that
//! a power cut at this moment may leave; switches a host on with it; lets the agent mend it; and asks the checker. Now and
//! then the power goes again while it mends.
//!
//! `FLEXNODE_CUTS` is how many, `FLEXNODE_SEED` the first case, `FLEXNODE_ONLY` a part of a scenario's name.
#![allow(clippy::unwrap_used, missing_docs)]

mod check;
mod real;
mod scenario;
mod search;
mod stores;
mod world;

use search::{Search, Tally};
use std::time::Instant;

/// What a plain `cargo test` runs, unoptimized; `cargo xtask test` runs 10,000 and `cargo xtask torture --model` more.
const CUTS: u64 = 100;

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str, default: u64) -> u64 {
    setting(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn tell(tally: &Tally, seconds: f64) {
    println!(
        "power cuts: {} in {seconds:.1} s, {} of them while an earlier one was mended; {} different disks were booted",
        tally.cuts, tally.again, tally.disks
    );
    for ((scenario, verdict), count) in &tally.verdicts {
        println!("  {scenario}: {count} ended as {verdict:?}");
    }
}

#[test]
fn after_a_power_cut_at_any_moment_the_old_version_runs_or_the_new_one() {
    let search = block_on(Search::new(&setting("FLEXNODE_ONLY").unwrap_or_default()));
    for line in search.told() {
        println!("{line}");
    }
    let (first, cuts) = (number("FLEXNODE_SEED", 1), number("FLEXNODE_CUTS", CUTS));
    let began = Instant::now();
    let (tally, failures) = search::run(&search, first, cuts, 3);
    tell(&tally, began.elapsed().as_secs_f64());
    for failure in &failures {
        println!("\nFLEXNODE_SEED={} FLEXNODE_CUTS=1:\n{}", failure.seed, failure.text);
    }
    assert!(failures.is_empty(), "{} cases failed, seed {} first", failures.len(), failures[0].seed);
}
