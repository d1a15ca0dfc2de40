use super::*;
use flexnode_status::observe::ProgramView;

const ALL: [UnitIs; 8] = [
    UnitIs::Unknown,
    UnitIs::NotThere,
    UnitIs::Off,
    UnitIs::Up,
    UnitIs::Changing,
    UnitIs::Looping,
    UnitIs::Failed,
    UnitIs::Stopped,
];
const NOW: Duration = Duration::from_secs(100_000);
const RUNS: Goal = Goal { runs: true, stopped_by_person: false };

fn before(seconds: u64) -> Duration {
    NOW.saturating_sub(Duration::from_secs(seconds))
}

fn observed(units: [UnitIs; 3]) -> Observed {
    let long_ago = before(60);
    Observed {
        now: NOW,
        units: KEPT.into_iter().zip(units).map(|(unit, is)| (unit, (is, long_ago))).collect(),
        kubelet_healthy: false,
        damaged_state: 0,
        busy: false,
        open: false,
        interrupted: false,
    }
}

fn all_units() -> impl Iterator<Item = [UnitIs; 3]> {
    ALL.into_iter().flat_map(|a| ALL.into_iter().flat_map(move |b| ALL.into_iter().map(move |c| [a, b, c])))
}

/// Every combination of units, lock, records, goal and memory: 512 * 128.
#[test]
fn the_rules_hold_for_every_combination() {
    let mut acted = 0;
    for units in all_units() {
        for bits in 0..128_u32 {
            let bit = |n: u32| bits & (1 << n) != 0;
            let (busy, interrupted, healthy) = (bit(0), bit(1), bit(3));
            let observed = Observed {
                busy,
                interrupted,
                // An interrupted operation is open.
                open: bit(2) || interrupted,
                kubelet_healthy: healthy,
                damaged_state: usize::from(bit(4)),
                ..observed(units)
            };
            let goal = Goal { runs: bit(5), stopped_by_person: bit(6) };
            let (action, _) = decide(&observed, goal, &Memory::default());
            let context = format!("{observed:?} {goal:?}");
            match action {
                Action::Wait => {}
                Action::AwaitLock => assert!(busy && interrupted, "{context}"),
                Action::TakeUp => assert!(!busy && interrupted, "{context}"),
                Action::Start { .. } | Action::SetAside => {
                    acted += 1;
                    // Never what a reset or a person stopped, never beside somebody else, never without a goal.
                    assert!(!busy && !observed.open && goal.runs && !goal.stopped_by_person, "{context}");
                }
            }
            if let Action::Start { unit, reason } = action {
                let is = observed.units[unit].0;
                assert_eq!(is == UnitIs::Failed, reason == Reason::UnitFailed, "{context}");
                assert!(matches!(is, UnitIs::Failed | UnitIs::Stopped), "{context}");
            }
            if action == Action::SetAside {
                assert!(observed.damaged_state > 0 && !healthy, "{context}");
            }
            if interrupted {
                assert_ne!(action, Action::Wait, "an interrupted operation comes first: {context}");
            }
        }
    }
    assert!(acted > 1000, "{acted}");
}

#[test]
fn the_first_unit_that_needs_it_is_started() {
    use UnitIs::{Failed, NotThere, Off, Stopped, Up};
    let start = |units| decide(&observed(units), RUNS, &Memory::default()).0;
    assert_eq!(start([Up, NotThere, Up]), Action::Wait);
    assert_eq!(start([Up, NotThere, Failed]), Action::Start { unit: UNIT_KUBELET, reason: Reason::UnitFailed });
    assert_eq!(
        start([Stopped, NotThere, Failed]),
        Action::Start { unit: UNIT_CONTAINERD, reason: Reason::UnitStopped }
    );
    assert_eq!(start([Up, Failed, Up]), Action::Start { unit: UNIT_LOCAL_DNS, reason: Reason::UnitFailed });
    assert_eq!(start([Off, NotThere, Off]), Action::Wait, "masked and disabled units are left");
}

/// C076.
#[test]
fn a_unit_that_was_stopped_is_started_once() {
    let stopped = observed([UnitIs::Up, UnitIs::NotThere, UnitIs::Stopped]);
    let mut memory = Memory::default();
    let (action, _) = decide(&stopped, RUNS, &memory);
    assert_eq!(action, Action::Start { unit: UNIT_KUBELET, reason: Reason::UnitStopped });
    memory.started(UNIT_KUBELET, Reason::UnitStopped, NOW);
    assert_eq!(decide(&stopped, RUNS, &memory).0, Action::Wait);
    assert!(memory.left(UNIT_KUBELET, UnitIs::Stopped, NOW).unwrap().contains("stopped again"));
    // Days later it is still left alone.
    let days = Observed { now: NOW + Duration::from_hours(100), ..stopped.clone() };
    memory.forget(&days);
    assert_eq!(decide(&days, RUNS, &memory).0, Action::Wait);
    // Somebody started it, and it was up for an hour: the next stop is another story.
    let mut up = observed([UnitIs::Up, UnitIs::NotThere, UnitIs::Up]);
    up.units.insert(UNIT_KUBELET, (UnitIs::Up, NOW.saturating_sub(WINDOW)));
    memory.forget(&up);
    assert!(matches!(decide(&stopped, RUNS, &memory).0, Action::Start { .. }));
}

#[test]
fn a_unit_that_has_just_ended_is_given_a_moment() {
    let mut ended = observed([UnitIs::Up, UnitIs::NotThere, UnitIs::Stopped]);
    ended.units.insert(UNIT_KUBELET, (UnitIs::Stopped, before(1)));
    assert_eq!(decide(&ended, RUNS, &Memory::default()), (Action::Wait, Some(Duration::from_secs(2))));
}

#[test]
fn a_unit_that_fails_is_started_more_and_more_slowly_and_then_left() {
    let mut memory = Memory::default();
    let mut failed = observed([UnitIs::Failed, UnitIs::NotThere, UnitIs::Up]);
    let mut starts = Vec::new();
    for second in 0..3000 {
        failed.now = NOW + Duration::from_secs(second);
        if let (Action::Start { unit, reason }, _) = decide(&failed, RUNS, &memory) {
            memory.started(unit, reason, failed.now);
            starts.push(second);
        }
    }
    assert_eq!(starts, [0, 10, 30, 70, 150], "pauses of 10, 20, 40 and 80 s, then no more");
    assert!(memory.left(UNIT_CONTAINERD, UnitIs::Failed, failed.now).unwrap().contains("left alone"));
    failed.now = NOW + WINDOW + Duration::from_secs(1);
    assert!(matches!(decide(&failed, RUNS, &memory).0, Action::Start { .. }), "an hour later once more");
}

/// C115: once, whatever comes of it.
#[test]
fn damaged_state_is_moved_aside_once() {
    let mut stuck = observed([UnitIs::Up, UnitIs::NotThere, UnitIs::Looping]);
    assert_eq!(decide(&stuck, RUNS, &Memory::default()).0, Action::Wait, "systemd starts it again");
    stuck.damaged_state = 1;
    let mut memory = Memory::default();
    assert_eq!(decide(&stuck, RUNS, &memory).0, Action::SetAside);
    memory.set_aside(NOW);
    assert_eq!(decide(&stuck, RUNS, &memory).0, Action::Wait);
    stuck.kubelet_healthy = true;
    assert_eq!(decide(&stuck, RUNS, &Memory::default()).0, Action::Wait);
}

#[test]
fn what_cannot_be_taken_up_is_tried_again_more_and_more_slowly() {
    let interrupted =
        Observed { interrupted: true, open: true, ..observed([UnitIs::Stopped, UnitIs::NotThere, UnitIs::Stopped]) };
    let nothing = Goal { runs: false, stopped_by_person: false };
    let mut memory = Memory::default();
    assert_eq!(decide(&interrupted, nothing, &memory).0, Action::TakeUp);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        memory.resumed(false, NOW);
        let (action, again) = decide(&interrupted, nothing, &memory);
        assert_eq!(action, Action::Wait);
        pauses.push(again.unwrap().as_secs());
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
    memory.resumed(true, NOW);
    assert_eq!(decide(&interrupted, nothing, &memory).0, Action::TakeUp);
    // C131: while somebody holds the lock, it is waited for him.
    let busy = Observed { busy: true, ..interrupted };
    assert_eq!(decide(&busy, nothing, &Memory::default()).0, Action::AwaitLock);
}

#[test]
fn how_a_unit_is_follows_from_what_systemd_says() {
    let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let is = |load: &str, active: &str, enabled: &str| {
        let state =
            UnitState { load: load.into(), active: active.into(), enabled: enabled.into(), ..UnitState::default() };
        let program = ProgramView { process: Ok(None), slot: None, resident: None };
        unit_is(&UnitView { state: Ok(state), program, last_lines: Vec::new() }, now)
    };
    assert_eq!(is("loaded", "active", "enabled"), UnitIs::Up);
    assert_eq!(is("loaded", "active", "disabled"), UnitIs::Up);
    assert_eq!(is("loaded", "inactive", "enabled"), UnitIs::Stopped);
    assert_eq!(is("loaded", "inactive", "disabled"), UnitIs::Off);
    assert_eq!(is("loaded", "failed", "disabled"), UnitIs::Off);
    assert_eq!(is("loaded", "failed", "enabled"), UnitIs::Failed);
    assert_eq!(is("loaded", "activating", "enabled"), UnitIs::Changing);
    assert_eq!(is("masked", "inactive", "masked"), UnitIs::Off);
    assert_eq!(is("masked", "active", "masked"), UnitIs::Off);
    assert_eq!(is("loaded", "inactive", "masked-runtime"), UnitIs::Off);
    assert_eq!(is("not-found", "inactive", ""), UnitIs::NotThere);
    assert_eq!(is("bad-setting", "inactive", ""), UnitIs::NotThere);
}
