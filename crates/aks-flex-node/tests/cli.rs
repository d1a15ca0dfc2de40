//! The program as a process: what needs neither root nor a host.

use assert_cmd::Command;

fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aks-flex-node"));
    command.env_clear().timeout(std::time::Duration::from_secs(30));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn version_is_four_lines_on_standard_output() {
    let output = agent().arg("version").current_dir("/").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert_eq!(lines[0], "aks-flex-node");
    for (line, begin) in lines[1..].iter().zip(["Version: ", "Git Commit: ", "Build Time: "]) {
        assert!(line.len() > begin.len() && line.starts_with(begin), "{line}");
    }
    assert!(output.stderr.is_empty());
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let output = agent().arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let out = text(&output.stdout);
    for word in
        ["start", "status", "reset", "daemon", "plan", "bundle", "version", "completion", "7 failed and rolled back"]
    {
        assert!(out.contains(word), "{word} is missing in:\n{out}");
    }
}

#[test]
fn mistakes_of_the_command_line_exit_with_2_and_change_nothing() {
    for args in [
        &[][..],
        &["strat"][..],
        &["start", "--wait", "soon"][..],
        &["start", "--timeout", "5"][..],
        &["status", "--output", "xml"][..],
        &["reset", "--force"][..],
        &["bundle"][..],
    ] {
        let output = agent().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn completions_are_scripts_for_the_program() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = agent().args(["completion", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("aks-flex-node"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_aks-flex-node"))
        .args(["completion", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty());
}

#[test]
fn reset_without_a_terminal_and_without_yes_exits_with_5_and_names_the_flag() {
    for args in [&["reset"][..], &["unbootstrap", "--keep-images", "--output", "json"][..]] {
        let output = agent().args(args).write_stdin("y\n").output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{args:?}");
        assert!(text(&output.stderr).contains("aks-flex-node reset --yes"), "{}", text(&output.stderr));
        let last = text(&output.stdout);
        let json = args.contains(&"json");
        assert_eq!(last.contains(r#""event":"commandFinished","exitCode":5,"errors":["reset takes"#), json, "{last}");
    }
}

#[test]
fn a_configuration_that_is_not_there_or_open_to_others_exits_with_2() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.json");
    let missing = agent().args(["start", "--config"]).arg(&config).output().unwrap();
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));

    std::fs::write(&config, r#"{"azure":{"bootstrapToken":{"token":"abcdef.0123456789abcdef"}}}"#).unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = agent().args(["start", "--config"]).arg(&config).output().unwrap();
    assert_eq!(open.status.code(), Some(2), "{}", text(&open.stderr));
    assert!(!text(&open.stderr).contains("0123456789abcdef"), "the token is in the error");
    // Who is not root is told so first.
    let said = text(&open.stderr);
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    let command = format!("chmod 0600 {}", config.display());
    assert!(if root { said.contains(&command) } else { said.contains("root") }, "{said}");
}
