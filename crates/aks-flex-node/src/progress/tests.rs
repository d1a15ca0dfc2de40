use super::json;
use super::lines::Lines;
use super::live::Live;
use flexnode_ops::Event;
use flexnode_ops::observer::{Ending, Finish};
use std::time::Duration;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn begin(index: usize, step: &str) -> Event {
    Event::StepStarted {
        step: step.into(),
        title: format!("do {step}"),
        index,
        of: 12,
        deadline_seconds: 60.0,
        rollback: false,
    }
}

fn note(step: &str, text: &str) -> Event {
    Event::StepNote { step: step.into(), text: text.into() }
}

fn end(step: &str, outcome: Finish, text: &str, seconds: f64) -> Event {
    Event::StepFinished { step: step.into(), outcome, text: text.into(), seconds }
}

fn operation() -> Event {
    Event::OperationStarted {
        operation: "start".into(),
        attempt: 1,
        from: None,
        to: Some("1.36.3-1a2b3c4d".into()),
        steps: 12,
    }
}

#[test]
fn a_pipe_gets_one_line_per_step() {
    let mut lines = Lines::default();
    let events = [
        (operation(), 0),
        (begin(1, "check-host"), 0),
        (note("check-host", "looking at units"), 0),
        (end("check-host", Finish::Unchanged, "", 0.04), 0),
        (begin(2, "install-artifacts"), 1),
        (end("install-artifacts", Finish::Changed, "9 files", 3.12), 4),
        (begin(3, "start-kubelet"), 4),
        (
            Event::StepFailed {
                step: "start-kubelet".into(),
                errors: vec!["kubelet did not\nanswer".into(), "refused".into()],
                hint: None,
                seconds: 60.0,
            },
            64,
        ),
        (
            Event::OperationFinished {
                operation: "start".into(),
                outcome: Ending::Failed,
                step: Some("start-kubelet".into()),
                rollback_errors: vec![],
                seconds: 64.2,
            },
            64,
        ),
    ];
    let text: Vec<String> = events.iter().flat_map(|(event, now)| lines.on(event, at(*now))).collect();
    assert_eq!(
        text,
        [
            "start: 12 steps, to 1.36.3-1a2b3c4d",
            " 1/12  check-host                   ok          0.0 s",
            " 2/12  install-artifacts            changed     3.1 s  9 files",
            " 3/12  start-kubelet                FAILED     60.0 s  kubelet did not answer",
            "start: failed at step start-kubelet after 64.2 s",
        ]
    );
}

#[test]
fn a_note_that_stands_for_long_gets_one_line_on_a_pipe() {
    let mut lines = Lines::default();
    lines.on(&begin(7, "wait-for-certificate"), at(10));
    lines.on(&note("wait-for-certificate", "run: kubectl certificate approve csr-1"), at(11));
    assert!(lines.tick(at(15)).is_empty());
    let shown = lines.tick(at(16));
    assert_eq!(
        shown,
        [" 7/12  wait-for-certificate         ...         6.0 s  run: kubectl certificate approve csr-1"]
    );
    // The same words again are no news.
    lines.on(&note("wait-for-certificate", "run: kubectl certificate approve csr-1"), at(17));
    assert!(lines.tick(at(40)).is_empty());
}

#[test]
fn a_terminal_shows_the_running_step_below_the_finished_ones() {
    let mut live = Live::default();
    assert_eq!(live.on(&operation(), at(0), 80), "start: 12 steps, to 1.36.3-1a2b3c4d\n");
    assert_eq!(
        live.on(&begin(1, "check-host"), at(0), 80),
        "\r\x1b[K 1/12  check-host                   ...         0.0 s  do check-host"
    );
    assert_eq!(
        live.on(&note("check-host", "looking at units"), at(2), 80),
        "\r\x1b[K 1/12  check-host                   ...         2.0 s  looking at units"
    );
    assert_eq!(live.tick(at(3), 60), "\r\x1b[K 1/12  check-host                   ...         3.0 s  look");
    assert_eq!(
        live.on(&end("check-host", Finish::Unchanged, "", 3.0), at(3), 80),
        "\r\x1b[K 1/12  check-host                   ok          3.0 s\n"
    );
    assert_eq!(live.end(), "");
}

#[test]
fn what_is_said_meanwhile_stands_above_the_running_step() {
    let mut live = Live::default();
    live.on(&begin(1, "stop-kubelet"), at(0), 80);
    assert_eq!(
        live.say("it goes on"),
        "\r\x1b[Kit goes on\n\r\x1b[K 1/12  stop-kubelet                 ...         0.0 s  do stop-kubelet"
    );
    assert_eq!(live.end(), "\r\x1b[K");
    assert_eq!(live.say("over"), "over\n");
}

#[test]
fn a_way_back_with_errors_tells_them() {
    let mut lines = Lines::default();
    lines.on(&operation(), at(0));
    let event = Event::RollbackStarted { step: "start".into(), reason: "kubelet died".into(), steps: 5 };
    assert_eq!(lines.on(&event, at(1)), ["start: going back, because of step start: kubelet died"]);
    let event = Event::OperationFinished {
        operation: "start".into(),
        outcome: Ending::RolledBack,
        step: Some("start".into()),
        rollback_errors: vec!["step flip-back failed: no link".into()],
        seconds: 2.0,
    };
    assert_eq!(
        lines.on(&event, at(2)),
        ["start: step start failed, and the way back had errors (2.0 s)", "  step flip-back failed: no link"]
    );
}

#[test]
fn json_lines_have_a_version_and_a_time() {
    let time: jiff::Timestamp = "2026-11-29T10:11:12.5Z".parse().unwrap();
    assert_eq!(
        json::line(&note("flip", "a \"b\""), time),
        r#"{"version":1,"time":"2026-11-29T10:11:12.5Z","event":"stepNote","step":"flip","text":"a \"b\""}"#
    );
    assert_eq!(
        json::finished(0, &[], &[], time),
        r#"{"version":1,"time":"2026-11-29T10:11:12.5Z","event":"commandFinished","exitCode":0}"#
    );
    assert_eq!(
        json::finished(1, &["a".into()], &["b".into()], time),
        r#"{"version":1,"time":"2026-11-29T10:11:12.5Z","event":"commandFinished","exitCode":1,"errors":["a"],"hints":["b"]}"#
    );
}

/// docs/events.md shows every event as it is written.
#[test]
fn the_documented_lines_are_those_that_are_written() {
    let time: jiff::Timestamp = "2026-11-29T10:11:12.5Z".parse().unwrap();
    let kubelet = || "start-kubelet".to_owned();
    let events = [
        Event::OperationStarted {
            operation: "start".into(),
            attempt: 1,
            from: None,
            to: Some("1.36.3-1a2b3c4d".into()),
            steps: 24,
        },
        Event::StepStarted {
            step: kubelet(),
            title: "start kubelet".into(),
            index: 20,
            of: 24,
            deadline_seconds: 180.0,
            rollback: false,
        },
        note("start-kubelet", "waiting for healthz"),
        end("start-kubelet", Finish::Changed, "", 0.512),
        Event::StepFailed {
            step: kubelet(),
            errors: vec!["kubelet does not answer".into(), "connection refused".into()],
            hint: Some("journalctl -u unbounded-kubelet".into()),
            seconds: 120.0,
        },
        Event::Committed { step: "stop-kubelet".into() },
        Event::RollbackStarted {
            step: kubelet(),
            reason: "kubelet does not answer: connection refused".into(),
            steps: 6,
        },
        Event::OperationFinished {
            operation: "start".into(),
            outcome: Ending::Failed,
            step: Some(kubelet()),
            rollback_errors: vec![],
            seconds: 130.25,
        },
    ];
    let errors = ["step start-kubelet failed".to_owned(), "kubelet does not answer".to_owned()];
    let hints = ["journalctl -u unbounded-kubelet".to_owned()];
    let written: Vec<String> = events.iter().map(|event| json::line(event, time)).collect();
    let page = include_str!("../../../../docs/events.md");
    let shown: Vec<&str> = page.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(shown[..written.len()], written);
    assert_eq!(shown.last().unwrap(), &json::finished(1, &errors, &hints, time));
}
