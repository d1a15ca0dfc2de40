//! The stores alone: whatever is saved, a reader after a power cut finds one of the things that were saved, whole, never one
//! that is older than what was said to be saved.

use flexnode_daemon::record::RecordStore;
use flexnode_daemon::state::{State, StateStore};
use flexnode_host::Fs;
use flexnode_host::testing::power::{Cut, Doubts, Seed};
use flexnode_host::testing::{FakeHost, MemFs};
use flexnode_model::record::HostRecord;
use flexnode_model::state::Extension;
use flexnode_ops::{Cancel, Engine, Journal, Operation, Outcome, Recovery, Silent, Step};
use std::sync::Arc;
use std::time::Duration;

/// More operations than the journal keeps, so that old records go.
const OPERATIONS: usize = flexnode_ops::journal::HISTORY + 3;

/// A store, as something that saves the numbers 1, 2, 3, ... and reads the one that was saved last; 0 for none.
struct Store {
    name: &'static str,
    numbers: usize,
    save: fn(&MemFs, usize),
    load: fn(&MemFs) -> Result<usize, String>,
}

fn shared(fs: &MemFs) -> Arc<dyn Fs> {
    Arc::new(fs.clone())
}

fn text(error: &(dyn std::error::Error + 'static)) -> String {
    flexnode_ops::report::layers(error).join(": ")
}

const STORES: [Store; 3] = [
    Store {
        name: "state",
        numbers: 5,
        save: |fs, number| {
            let flexnode = Some(Extension { goal: number.to_string(), ..Extension::default() });
            let state = State { applied_kubernetes_version: "1.36.3".into(), flexnode, ..State::default() };
            StateStore::new(shared(fs)).save(&state).unwrap();
        },
        load: |fs| {
            let state = StateStore::new(shared(fs)).load().map_err(|e| text(&e))?;
            let goal = state.and_then(|state| state.flexnode).map(|extension| extension.goal);
            Ok(goal.map_or(0, |goal| goal.parse().unwrap()))
        },
    },
    Store {
        name: "record",
        numbers: 5,
        save: |fs, number| {
            let mut record = HostRecord::new(jiff::Timestamp::UNIX_EPOCH);
            record.node_name = Some(number.to_string());
            // Of several blocks, as that of a host with many links.
            record.modules = (0..300 * number).map(|n| format!("module-number-{n}")).collect();
            RecordStore::new(shared(fs)).save(&record).unwrap();
        },
        load: |fs| {
            let record = RecordStore::new(shared(fs)).load().map_err(|e| text(&e))?;
            let Some(record) = record else { return Ok(0) };
            let number = record.node_name.unwrap().parse().unwrap();
            if record.modules.len() == 300 * number { Ok(number) } else { Err("its parts are of two records".into()) }
        },
    },
    Store {
        name: "journal",
        numbers: OPERATIONS,
        save: |fs, number| {
            let mut fake = FakeHost::new();
            fake.fs = Arc::new(fs.clone());
            // Each operation at a time of its own.
            fake.clock.advance(Duration::from_secs(u64::try_from(number).unwrap()));
            let engine = Engine::new(&fake.host(), "command", Cancel::new()).unwrap();
            let step = Step::new("one", "do it", Duration::from_secs(5), |_| async { Ok(Outcome::Unchanged) });
            let operation = Operation {
                kind: "start",
                goal: number.to_string(),
                from: None,
                to: None,
                steps: vec![step],
                recovery: Recovery::Resume,
            };
            let run = engine.run(&operation, Arc::new(Silent));
            assert!(crate::block_on(run).unwrap().is_done());
        },
        load: |fs| {
            let journal = Journal::new(shared(fs));
            let last = journal.last().map_err(|e| text(&e))?;
            let Some(last) = last else { return Ok(0) };
            Ok(last.goal.parse().unwrap())
        },
    },
];

/// One case on a store: saves, the power goes, and what is found is saved over.
fn case(store: &Store, seed: u64) -> Result<(), String> {
    let mut chance = Seed::new(seed);
    let below = |chance: &mut Seed, end: usize| usize::try_from(chance.below(end as u64)).unwrap();
    let fs = MemFs::new();
    fs.put_dir("/etc/aks-flex-node", 0o755).put_dir("/var/lib", 0o755);
    let saved = below(&mut chance, store.numbers);
    (1..=saved).for_each(|number| (store.save)(&fs, number));
    fs.record();
    (store.save)(&fs, saved + 1);
    let history = fs.recorded();
    let last = history.moments() - 1;
    let moment = if chance.below(8) == 0 { last } else { below(&mut chance, history.moments()) };
    let mut doubts = Doubts::of_cut(Cut::Seed(chance.next_number()));
    let left = history.cut(moment, &mut doubts);
    let told = |what: String| {
        format!("{}, seed {seed}: {what}\n  {}", store.name, history.tell(moment, doubts.answers()).join("\n  "))
    };
    let found = (store.load)(&left).map_err(told)?;
    let oldest = if moment == last { saved + 1 } else { saved };
    if found < oldest || found > saved + 1 {
        return Err(told(format!("{found} is found, {oldest} was saved")));
    }
    (store.save)(&left, store.numbers + 9);
    match (store.load)(&left.after_power_cut(Cut::Lazy)).map_err(told)? {
        found if found == store.numbers + 9 => Ok(()),
        found => Err(told(format!("{found} is found after another save"))),
    }
}

#[test]
fn a_store_holds_what_was_saved_last_or_what_was_being_saved() {
    for store in &STORES {
        for seed in 0..crate::number("FLEXNODE_CUTS", crate::CUTS) / 4 {
            if let Err(why) = case(store, seed) {
                panic!("{why}");
            }
        }
    }
}
