//! The fake PID 1 keeps what the real one keeps, and does what a test tells it.

use super::super::{FakeHost, systemd_suite};
use super::*;

const WAIT: Duration = Duration::from_secs(30);

fn unit(host: &FakeHost, name: &str, text: &str) {
    host.fs.put(format!("/etc/systemd/system/{name}"), text, 0o644);
}

#[tokio::test]
async fn the_suite_of_every_systemd() {
    let host = FakeHost::new();
    for program in ["/bin/sleep", "/bin/false"] {
        host.fs.put(program, "", 0o755);
    }
    let scripts = systemd_suite::Scripts {
        fails: &|unit| {
            host.systemd.script(Verb::Start, unit, Script::exit(1));
        },
        hangs: &|unit| {
            host.systemd.script(Verb::Start, unit, Script::Hang);
        },
    };
    systemd_suite::run(&host.host(), scripts).await;
    assert_eq!(host.fs.tree().0.keys().filter(|path| path.to_string_lossy().contains("suite")).count(), 0);
}

#[tokio::test]
async fn dependencies_start_and_stop_along() {
    let host = FakeHost::new();
    host.systemd.lenient();
    unit(&host, "runtime.service", "[Service]\nExecStart=/r\n");
    unit(&host, "dns.service", "[Service]\nExecStart=/d\n");
    unit(
        &host,
        "node.service",
        "[Unit]\nRequires=runtime.service\nWants=dns.service gone.service\n[Service]\nExecStart=/n\n",
    );
    host.systemd.start("node.service", WAIT).await.unwrap();
    for name in ["node.service", "runtime.service", "dns.service"] {
        assert!(host.systemd.state(name).is_active(), "{name}");
    }
    host.systemd.stop("runtime.service", WAIT).await.unwrap();
    assert!(!host.systemd.state("node.service").is_active(), "it requires what was stopped");
    assert!(host.systemd.state("dns.service").is_active());
    host.systemd.script(Verb::Start, "runtime.service", Script::exit(2));
    assert_eq!(host.systemd.calls(), ["start node.service", "stop runtime.service"]);
}

#[tokio::test]
async fn a_service_needs_its_program_and_environment() {
    let host = FakeHost::new();
    unit(
        &host,
        "a.service",
        "[Service]\nEnvironmentFile=/env\nEnvironmentFile=-/optional\nExecStart=/opt/current/bin/a x\n",
    );
    let error = host.systemd.start("a.service", WAIT).await.unwrap_err().to_string();
    assert!(error.contains("/env"), "{error}");
    assert_eq!(host.systemd.state("a.service").result, "resources");
    host.fs.put("/env", "", 0o600);
    let error = host.systemd.start("a.service", WAIT).await.unwrap_err().to_string();
    assert!(error.contains("203/EXEC"), "{error}");
    host.fs.put("/opt/v1/bin/a", "", 0o755).put_link("v1", "/opt/current");
    host.systemd.start("a.service", WAIT).await.unwrap();
    let pid = host.systemd.state("a.service").main_pid;
    let process = crate::Processes::get(host.processes.as_ref(), pid).unwrap().unwrap();
    assert_eq!(process.exe, std::path::Path::new("/opt/v1/bin/a"), "links are resolved");
    let stat = crate::Fs::stat(host.fs.as_ref(), std::path::Path::new("/opt/v1/bin/a")).unwrap().unwrap();
    assert_eq!(process.exe_id, Some((stat.dev, stat.ino)));
}

#[tokio::test]
async fn scripts_count_down_and_hooks_run_after_success() {
    let host = FakeHost::new();
    host.systemd.lenient();
    unit(&host, "a.service", "[Service]\nExecStart=/a\n");
    let fs = host.fs.clone();
    host.systemd.hook(Verb::Start, "a.service", move || {
        fs.put("/made", "", 0o644);
    });
    host.systemd.script(Verb::Start, "a.service", Script::Refuse("no".to_owned()));
    host.systemd.script(Verb::Start, "a.service", Script::DieAfterStart(7));
    assert!(host.systemd.start("a.service", WAIT).await.is_err());
    assert!(!host.fs.exists("/made"));
    host.systemd.start("a.service", WAIT).await.unwrap();
    let died = host.systemd.state("a.service");
    assert_eq!((died.active.as_str(), died.exit_status, host.fs.exists("/made")), ("failed", 7, true));
    host.systemd.start("a.service", WAIT).await.unwrap();
    assert!(host.systemd.state("a.service").is_active());
    let before = host.clock.slept();
    host.systemd.script_always(Verb::Stop, "a.service", Script::Hang);
    for _ in 0..2 {
        assert!(matches!(host.systemd.stop("a.service", WAIT).await, Err(HostError::Deadline { .. })));
    }
    assert_eq!(host.clock.slept(), before + 2 * WAIT);
}

#[tokio::test]
async fn a_reboot_starts_what_is_enabled() {
    let host = FakeHost::new();
    host.systemd.lenient();
    unit(&host, "on.service", "[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n");
    unit(&host, "off.service", "[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n");
    host.systemd.enable("on.service").await.unwrap();
    host.systemd.start("off.service", WAIT).await.unwrap();
    host.systemd.reboot();
    assert!(host.systemd.state("on.service").is_active() && !host.systemd.state("off.service").is_active());
}

#[tokio::test]
async fn templates_and_instances() {
    let host = FakeHost::new();
    host.systemd.lenient();
    host.fs.put("/usr/lib/systemd/system/box@.service", "[Service]\nExecStart=/box %i\n", 0o644);
    host.fs.put("/etc/systemd/system/box@one.service.d/x.conf", "[Service]\nEnvironment=I=%i\n", 0o644);
    host.systemd.start("box@one.service", WAIT).await.unwrap();
    let state = host.systemd.state("box@one.service");
    assert_eq!(
        (state.exec_start, state.environment),
        (vec!["/box".to_owned(), "one".to_owned()], vec!["I=one".to_owned()])
    );
}
