//! Commands in this process, on a host in memory.

use crate::cli::Output;
use crate::exit::Exit;
use crate::terminal::{Stream, Terminal};
use crate::{Env, exit_of, session};
use flexnode_host::testing::FakeHost;
use flexnode_host::{Host, RealClock};
use flexnode_ops::{Engine, Operation, Outcome, Recovery, RunOutcome, Step};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What was written to a stream.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Nobody reads it.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A host in memory whose clock is the real one: what waits must not spin.
fn host() -> Host {
    Host { clock: Arc::new(RealClock), ..FakeHost::new().host() }
}

fn env(host: Host, is_root: bool) -> (Env, Written, Written) {
    let (out, err) = (Written::default(), Written::default());
    let terminal = Terminal {
        out: Stream::new(out.clone(), false),
        err: Stream::new(err.clone(), false),
        input: Box::new(io::empty()),
        input_is_terminal: false,
    };
    (Env { terminal, host: Some(host), is_root }, out, err)
}

#[test]
fn who_is_not_root_is_told_so_before_anything_happens() {
    for args in [&["aks-flex-node", "start"][..], &["aks-flex-node", "reset", "--yes"], &["aks-flex-node", "daemon"]] {
        let fake = FakeHost::new();
        let before = fake.fs.tree_with_stamps();
        let (env, out, err) = env(fake.host(), false);
        assert_eq!(exit_of(args.iter().copied(), env), Exit::Usage, "{args:?}");
        assert!(err.text().contains("has to run as root"), "{}", err.text());
        assert_eq!(out.text(), "");
        assert_eq!(fake.fs.tree_with_stamps(), before);
    }
}

#[test]
fn version_needs_no_host() {
    let (mut env, out, err) = env(host(), false);
    env.host = None;
    assert_eq!(exit_of(["aks-flex-node", "version"], env), Exit::Done);
    assert_eq!((out.text().lines().count(), err.text().as_str()), (4, ""));
}

fn send(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

/// One step after the other; the second takes the node down. In `signal_in` a signal comes, and the step ends when the
/// person was answered.
fn operation(signal_in: &'static str, said: &Written) -> Operation {
    let step = |name: &'static str| {
        let said = said.clone();
        Step::new(name, name, Duration::from_mins(1), move |_| {
            let said = said.clone();
            async move {
                if name == signal_in {
                    send(Signal::TERM);
                    while !said.text().contains("SIGTERM") {
                        tokio::task::yield_now().await;
                    }
                }
                Ok(Outcome::Changed(String::new()))
            }
        })
    };
    let steps = vec![step("prepare"), step("stop").takes_down(), step("start")];
    Operation { kind: "restart", goal: String::new(), from: None, to: None, steps, recovery: Recovery::Resume }
}

fn run(env: &Env, output: Output, operation: Operation) -> (Exit, Option<RunOutcome>) {
    let ended = Arc::new(Mutex::new(None));
    let at = ended.clone();
    let exit = session::run(env, output, |session| async move {
        let engine = Engine::new(&session.host, "command", session.cancel.clone()).unwrap();
        let report = engine.run(&operation, session.observer()).await.unwrap();
        let exit = if report.is_done() { Exit::Done } else { Exit::Failed };
        *at.lock().unwrap() = Some(report.outcome);
        Ok(exit)
    });
    let outcome = ended.lock().unwrap().take();
    (exit.unwrap(), outcome)
}

/// Signals are of the whole process: the tests that run operations take turns.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_signal_ends_a_command_only_before_the_node_is_down() {
    let _turn = TURN.lock();
    let (env_before, _, err) = env(host(), true);
    let (_, outcome) = run(&env_before, Output::Text, operation("prepare", &err));
    assert!(matches!(&outcome, Some(RunOutcome::Cancelled { before_step }) if before_step == "stop"), "{outcome:?}");
    assert!(err.text().contains("SIGTERM: it ends when the running step is done"), "{}", err.text());

    let (env_after, _, err) = env(host(), true);
    let (exit, outcome) = run(&env_after, Output::Text, operation("stop", &err));
    assert!(matches!(outcome, Some(RunOutcome::Done { .. })), "{outcome:?}");
    assert_eq!(exit, Exit::Done);
    assert!(err.text().contains("SIGTERM: the node may be down, so this goes on"), "{}", err.text());
}

#[test]
fn a_reader_that_goes_away_ends_a_command_only_before_the_node_is_down() {
    let _turn = TURN.lock();
    let unread = Written::default();
    for (output, json) in [(Output::Text, false), (Output::Json, true)] {
        let (mut env, ..) = env(host(), true);
        let closed = Stream::new(Closed, false);
        if json {
            env.terminal.out = closed;
        } else {
            env.terminal.err = closed;
        }
        let (_, outcome) = run(&env, output, operation("none", &unread));
        assert!(
            matches!(&outcome, Some(RunOutcome::Cancelled { before_step }) if before_step == "prepare"),
            "{outcome:?}"
        );
    }
    // Closed while the node is down.
    let (mut env, ..) = env(host(), true);
    let pipe = LastsUntil("stop");
    env.terminal.out = Stream::new(pipe, false);
    let (exit, _) = run(&env, Output::Json, operation("none", &unread));
    assert_eq!(exit, Exit::Done);
}

/// A reader that goes away at the first line that names this step.
struct LastsUntil(&'static str);

impl Write for LastsUntil {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = String::from_utf8_lossy(bytes).contains(&format!(r#""event":"stepStarted","step":"{}""#, self.0));
        if gone { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
