use super::*;
use crate::backend::{ExecRequest, LogRequest};
use flexnode_host::Output;

#[tokio::test]
async fn exec_runs_on_the_host_and_returns_the_output() {
    let node = Node::new();
    node.fake.commands.answer("crictl", &["ps"], "two pods\n");
    let output = node.backend.exec(&ExecRequest::new(["crictl", "ps"])).await.unwrap();
    assert_eq!(output.stdout, b"two pods\n");
    assert_eq!(node.fake.commands.lines(), ["crictl ps"]);
}

#[tokio::test]
async fn exec_propagates_the_failure_with_program_status_and_stderr() {
    let node = Node::new();
    node.fake.commands.exit("crictl", &[], 3, "", "no runtime\n");
    let error = node.backend.exec(&ExecRequest::new(["crictl", "ps"])).await.unwrap_err();
    assert_eq!(error.to_string(), "crictl ended with exit status 3: no runtime");
    assert!(matches!(node.backend.exec(&ExecRequest::new(Vec::<String>::new())).await.unwrap_err(), Error::Request(_)));
}

#[tokio::test]
async fn a_runner_of_ones_own_replaces_the_host() {
    let mut node = Node::new();
    let diary = Diary::default();
    let seen = diary.clone();
    node.backend.run = Runner::new(move |command| {
        seen.note(format!("{} {}", command.program.display(), command.args.join(" ")));
        async { Ok(Output { code: Some(0), stdout: b"mine".to_vec(), stderr: vec![] }) }
    });
    assert_eq!(node.backend.exec(&ExecRequest::new(["true", "x"])).await.unwrap().stdout, b"mine");
    assert_eq!(diary.lines(), ["true x"]);
    assert_eq!(node.fake.commands.lines(), Vec::<String>::new());
}

async fn lines(node: &Node, request: &LogRequest) -> Vec<String> {
    let mut lines = Vec::new();
    node.backend.logs(request, &mut |line: &str| lines.push(line.to_owned())).await.unwrap();
    lines
}

#[tokio::test]
async fn logs_of_a_unit_come_from_its_journal() {
    let node = Node::new();
    node.fake.commands.answer("journalctl", &[], "one\ntwo\n-- cursor: s=1\n");
    let request = LogRequest { unit: Some(UNIT_KUBELET.into()), lines: 20, follow: false };
    assert_eq!(lines(&node, &request).await, ["one", "two"]);
    let call = &node.fake.commands.lines()[0];
    assert!(call.contains("--lines=20") && call.ends_with("--unit=unbounded-kubelet.service"), "{call}");
}

#[tokio::test]
async fn logs_without_a_unit_cover_both() {
    let node = Node::new();
    node.fake.commands.answer("journalctl", &[], "");
    lines(&node, &LogRequest { unit: None, lines: 1, follow: false }).await;
    let call = &node.fake.commands.lines()[0];
    assert!(call.ends_with("--unit=unbounded-containerd.service --unit=unbounded-kubelet.service"), "{call}");
}

#[tokio::test]
async fn logs_of_a_unit_that_is_not_the_agents_are_refused() {
    let node = Node::new();
    let request = LogRequest { unit: Some("ssh.service".into()), lines: 1, follow: false };
    let error = node.backend.logs(&request, &mut |_: &str| {}).await.unwrap_err();
    assert!(matches!(error, Error::Request(_)));
    assert_eq!(node.fake.commands.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn following_goes_on_where_the_last_look_ended() {
    let node = Node::new();
    node.fake.commands.exit("journalctl", &[], 1, "", "the journal is gone");
    node.fake.commands.exit_once("journalctl", &[], 0, "one\n-- cursor: s=1;i=2\n", "");
    let mut seen = Vec::new();
    let request = LogRequest { unit: Some(UNIT_KUBELET.into()), lines: 5, follow: true };
    let error = node.backend.logs(&request, &mut |line: &str| seen.push(line.to_owned())).await.unwrap_err();
    assert!(error.to_string().contains("the journal is gone"), "{error}");
    assert_eq!(seen, ["one"]);
    let calls = node.fake.commands.lines();
    assert!(calls[0].contains("--lines=5") && calls[1].contains("--after-cursor=s=1;i=2"), "{calls:?}");
    assert!(!calls[1].contains("--lines"));
}
