//! What holds for every [`crate::Systemd`]: run on [`super::FakeSystemd`], and on PID 1 of a real host by
//! `tests/system.rs`.
#![allow(clippy::unwrap_used, reason = "test code: a failed unwrap is a failed test")]

use crate::{Host, HostError, UnitState, durable, poll};
use std::path::Path;
use std::time::Duration;

const DIR: &str = "/etc/systemd/system";
const WAIT: Duration = Duration::from_secs(30);

/// What a fake has to be told, since no program runs on it.
#[derive(Clone, Copy)]
pub struct Scripts<'a> {
    /// The next start of this unit fails: its program exits with 1.
    pub fails: &'a dyn Fn(&str),
    /// The next start of this unit never ends.
    pub hangs: &'a dyn Fn(&str),
}

impl std::fmt::Debug for Scripts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripts")
    }
}

/// Runs every case. The host has /bin/sleep and /bin/false; its units named `flexnode-suite-*` are made and removed.
pub async fn run(host: &Host, scripts: Scripts<'_>) {
    let suite = Suite { host, scripts };
    println!("case absent");
    suite.absent().await;
    println!("case start, stop and restart");
    suite.start_and_stop().await;
    println!("case enable");
    suite.enable().await;
    println!("case need reload");
    suite.need_reload().await;
    println!("case failure");
    suite.failure().await;
    println!("case deadline");
    suite.deadline().await;
    println!("case masked");
    suite.masked().await;
    println!("case automatic restart");
    suite.automatic_restart().await;
    println!("case list");
    suite.list().await;
}

struct Suite<'a> {
    host: &'a Host,
    scripts: Scripts<'a>,
}

fn name(short: &str) -> String {
    format!("flexnode-suite-{short}.service")
}

impl Suite<'_> {
    /// Writes a unit and lets systemd read it.
    async fn unit_file(&self, unit: &str, service: &str) {
        let text = format!(
            "[Unit]\nDescription=flexnode suite\n[Service]\n{service}\n[Install]\nWantedBy=multi-user.target\n"
        );
        durable::write(self.host.fs.as_ref(), &Path::new(DIR).join(unit), text.as_bytes(), 0o644).unwrap();
        self.host.systemd.reload().await.unwrap();
    }

    async fn remove(&self, unit: &str) {
        self.host.systemd.stop(unit, WAIT).await.unwrap();
        self.host.systemd.reset_failed(unit).await.unwrap();
        durable::remove_tree(self.host.fs.as_ref(), &Path::new(DIR).join(format!("{unit}.d"))).unwrap();
        durable::remove_file(self.host.fs.as_ref(), &Path::new(DIR).join(unit)).unwrap();
        self.host.systemd.reload().await.unwrap();
        assert_eq!(self.state(unit).await.load, "not-found");
    }

    async fn state(&self, unit: &str) -> UnitState {
        self.host.systemd.unit(unit).await.unwrap()
    }

    async fn absent(&self) {
        let (systemd, unit) = (&self.host.systemd, name("absent"));
        let state = self.state(&unit).await;
        assert_eq!((state.load.as_str(), state.active.as_str(), state.enabled.as_str()), ("not-found", "inactive", ""));
        for result in
            [systemd.start(&unit, WAIT).await, systemd.restart(&unit, WAIT).await, systemd.enable(&unit).await]
        {
            assert!(matches!(result, Err(HostError::Absent { .. })), "{result:?}");
        }
        systemd.stop(&unit, WAIT).await.unwrap();
        systemd.disable(&unit).await.unwrap();
        systemd.reset_failed(&unit).await.unwrap();
    }

    async fn start_and_stop(&self) {
        let (systemd, unit) = (&self.host.systemd, name("run"));
        self.unit_file(&unit, "Type=exec\nExecStart=/bin/sleep 600\nEnvironment=A=1 \"B=two words\"").await;
        let before = self.state(&unit).await;
        assert_eq!((before.active.as_str(), before.main_pid, before.is_loaded()), ("inactive", 0, true));

        systemd.start(&unit, WAIT).await.unwrap();
        let state = self.state(&unit).await;
        assert_eq!(
            (state.active.as_str(), state.sub.as_str(), state.result.as_str()),
            ("active", "running", "success")
        );
        assert_eq!(state.exec_start, ["/bin/sleep", "600"]);
        assert_eq!(state.environment, ["A=1", "B=two words"]);
        assert_eq!(state.fragment, Path::new(DIR).join(&unit));
        assert_eq!(state.control_group, format!("/system.slice/{unit}"));
        assert!(state.since_us > before.since_us && state.is_active() && !state.need_reload && state.restarts == 0);
        let process = self.host.processes.get(state.main_pid).unwrap().unwrap();
        assert_eq!(process.cmdline, ["/bin/sleep", "600"]);
        assert!(self.host.cgroups.pids(&state.control_group).unwrap().contains(&state.main_pid));

        systemd.start(&unit, WAIT).await.unwrap();
        assert_eq!(self.state(&unit).await.main_pid, state.main_pid, "a unit that runs is not started again");
        systemd.restart(&unit, WAIT).await.unwrap();
        let again = self.state(&unit).await;
        assert!(again.is_active() && again.main_pid != state.main_pid);
        assert_eq!(self.host.processes.get(state.main_pid).unwrap(), None);

        systemd.stop(&unit, WAIT).await.unwrap();
        let stopped = self.state(&unit).await;
        assert_eq!((stopped.active.as_str(), stopped.sub.as_str(), stopped.main_pid), ("inactive", "dead", 0));
        assert_eq!(self.host.processes.get(again.main_pid).unwrap(), None);
        systemd.stop(&unit, WAIT).await.unwrap();
        systemd.restart(&unit, WAIT).await.unwrap();
        assert!(self.state(&unit).await.is_active(), "restart starts what does not run");
        self.remove(&unit).await;
    }

    async fn enable(&self) {
        let (systemd, unit) = (&self.host.systemd, name("enable"));
        let link = Path::new(DIR).join("multi-user.target.wants").join(&unit);
        self.unit_file(&unit, "ExecStart=/bin/sleep 600").await;
        assert_eq!(self.state(&unit).await.enabled, "disabled");
        systemd.enable(&unit).await.unwrap();
        assert_eq!(self.state(&unit).await.enabled, "enabled");
        assert!(self.state(&unit).await.need_reload, "links have changed");
        systemd.reload().await.unwrap();
        assert!(!self.state(&unit).await.need_reload);
        let before = self.host.fs.lstat(&link).unwrap().unwrap();
        systemd.enable(&unit).await.unwrap();
        assert_eq!(self.host.fs.lstat(&link).unwrap(), Some(before), "enabled stays as it is");
        assert!(!self.state(&unit).await.need_reload);
        assert_eq!(self.host.fs.canonicalize(&link).unwrap(), Path::new(DIR).join(&unit));
        systemd.disable(&unit).await.unwrap();
        assert_eq!(self.host.fs.lstat(&link).unwrap(), None);
        systemd.disable(&unit).await.unwrap();
        assert_eq!(self.state(&unit).await.enabled, "disabled");
        assert!(!self.state(&unit).await.is_active(), "enabling does not start");

        let text = "[Service]\nExecStart=/bin/sleep 600\n";
        durable::write(self.host.fs.as_ref(), &Path::new(DIR).join(&unit), text.as_bytes(), 0o644).unwrap();
        systemd.reload().await.unwrap();
        assert_eq!(self.state(&unit).await.enabled, "static");
        self.remove(&unit).await;
    }

    async fn need_reload(&self) {
        let (systemd, unit) = (&self.host.systemd, name("reload"));
        self.unit_file(&unit, "Type=exec\nExecStart=/bin/sleep 600").await;
        systemd.start(&unit, WAIT).await.unwrap();
        let pid = self.state(&unit).await.main_pid;
        let text = "[Service]\nType=exec\nExecStart=/bin/sleep 700\n";
        durable::write(self.host.fs.as_ref(), &Path::new(DIR).join(&unit), text.as_bytes(), 0o644).unwrap();
        let changed = self.state(&unit).await;
        assert!(changed.need_reload, "the file is another one");
        assert_eq!(changed.exec_start, ["/bin/sleep", "600"], "as loaded");
        systemd.reload().await.unwrap();
        let reloaded = self.state(&unit).await;
        assert!(!reloaded.need_reload);
        assert_eq!((reloaded.exec_start, reloaded.main_pid), (vec!["/bin/sleep".to_owned(), "700".to_owned()], pid));

        let drop_in = Path::new(DIR).join(format!("{unit}.d/10-suite.conf"));
        durable::ensure_dir(self.host.fs.as_ref(), drop_in.parent().unwrap(), 0o755).unwrap();
        durable::write(self.host.fs.as_ref(), &drop_in, b"[Service]\nEnvironment=DROP=1\n", 0o644).unwrap();
        let changed = self.state(&unit).await;
        assert!(changed.need_reload && changed.drop_ins.is_empty(), "a new drop-in");
        systemd.reload().await.unwrap();
        let reloaded = self.state(&unit).await;
        assert_eq!((reloaded.drop_ins, reloaded.environment), (vec![drop_in], vec!["DROP=1".to_owned()]));
        assert!(!reloaded.need_reload && reloaded.main_pid == pid);
        self.remove(&unit).await;
    }

    async fn failure(&self) {
        let (systemd, unit) = (&self.host.systemd, name("fail"));
        self.unit_file(&unit, "Type=oneshot\nExecStart=/bin/false").await;
        (self.scripts.fails)(&unit);
        let error = systemd.start(&unit, WAIT).await.unwrap_err();
        assert!(matches!(&error, HostError::Failed { what, .. } if what.contains(&unit)), "{error:?}");
        let state = self.state(&unit).await;
        assert_eq!((state.active.as_str(), state.result.as_str(), state.exit_status), ("failed", "exit-code", 1));
        systemd.reset_failed(&unit).await.unwrap();
        assert_eq!(self.state(&unit).await.active, "inactive");
        self.remove(&unit).await;
    }

    async fn deadline(&self) {
        let (systemd, unit) = (&self.host.systemd, name("hang"));
        // It never says that it is ready.
        self.unit_file(&unit, "Type=notify\nTimeoutStartSec=60\nExecStart=/bin/sleep 600").await;
        (self.scripts.hangs)(&unit);
        let error = systemd.start(&unit, Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(error, HostError::Deadline { .. }), "{error:?}");
        assert_eq!(self.state(&unit).await.active, "activating");
        systemd.stop(&unit, WAIT).await.unwrap();
        assert!(["inactive", "failed"].contains(&self.state(&unit).await.active.as_str()));
        self.remove(&unit).await;
    }

    async fn masked(&self) {
        let (systemd, unit) = (&self.host.systemd, name("masked"));
        let path = Path::new(DIR).join(&unit);
        durable::replace_link(self.host.fs.as_ref(), Path::new("/dev/null"), &path).unwrap();
        systemd.reload().await.unwrap();
        let state = self.state(&unit).await;
        assert_eq!((state.load.as_str(), state.enabled.as_str(), state.is_loaded()), ("masked", "masked", false));
        for result in [systemd.start(&unit, WAIT).await, systemd.enable(&unit).await] {
            assert!(matches!(result, Err(HostError::Failed { .. })), "{result:?}");
        }
        systemd.stop(&unit, WAIT).await.unwrap();
        self.remove(&unit).await;
    }

    async fn automatic_restart(&self) {
        let (systemd, unit) = (&self.host.systemd, name("again"));
        self.unit_file(&unit, "Type=exec\nRestart=always\nRestartSec=50ms\nExecStart=/bin/sleep 600").await;
        systemd.start(&unit, WAIT).await.unwrap();
        let first = self.state(&unit).await;
        let process = self.host.processes.get(first.main_pid).unwrap().unwrap();
        assert!(self.host.processes.signal(&process, 9).unwrap());
        let back = poll(self.host.clock.as_ref(), Duration::from_millis(50), WAIT, || async {
            let now = self.host.systemd.unit(&unit).await?;
            Ok::<_, HostError>((now.is_active() && now.main_pid != first.main_pid && now.main_pid != 0).then_some(now))
        });
        assert_eq!(back.await.unwrap().expect("it comes back").restarts, 1);
        self.remove(&unit).await;
    }

    async fn list(&self) {
        let (systemd, one, two) = (&self.host.systemd, name("list-one"), name("list-two"));
        self.unit_file(&one, "Type=exec\nExecStart=/bin/sleep 600").await;
        self.unit_file(&two, "Type=exec\nExecStart=/bin/sleep 600").await;
        systemd.start(&one, WAIT).await.unwrap();
        assert_eq!(systemd.list(&["flexnode-suite-list-*"]).await.unwrap(), [one.clone(), two.clone()]);
        assert_eq!(systemd.list(&["*-list-t?o.service", "no-such-*"]).await.unwrap(), std::slice::from_ref(&two));
        assert_eq!(systemd.list(&["flexnode-suite-absent.service"]).await.unwrap(), Vec::<String>::new());
        self.remove(&one).await;
        self.remove(&two).await;
    }
}
