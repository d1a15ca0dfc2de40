use super::*;
use crate::node::tests::object;
use crate::testing::{mock, mock_streaming};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn list(items: &[Value], version: &str) -> Value {
    json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items})
}

fn event(kind: &str, version: &str) -> Value {
    let mut node = object("False", "PLEG", "2026-11-30T12:00:00Z");
    node["metadata"]["resourceVersion"] = json!(version);
    json!({"type": kind, "object": node})
}

/// What is told until `count` things were, in words.
async fn told(client: kube::client::Client, count: usize) -> Vec<String> {
    let node = NodeClient::with_client(client, "node-1");
    let (done, words) = (Notify::new(), Mutex::new(Vec::new()));
    let tell = |told: Told| {
        let word = match told {
            Ok(None) => "gone".to_owned(),
            Ok(Some(view)) => view.why_not_ready().unwrap_or_else(|| "Ready".into()),
            Err(problem) => problem.to_string(),
        };
        let mut words = words.lock().unwrap();
        words.push(word);
        if words.len() == count {
            done.notify_one();
        }
    };
    let credentials = Notify::new();
    tokio::select! {
        _ = node.watch(&credentials, &tell) => {}
        () = done.notified() => {}
    }
    words.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_and_a_watch_goes_on_where_the_last_one_ended() {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = lines.clone();
    let client = mock_streaming(move |line| {
        log.lock().unwrap().push(line.to_owned());
        if !line.contains("watch=true") {
            return (200, vec![list(&[object("True", "", "2026-11-30T12:00:00Z")], "5")], false);
        }
        assert!(line.contains("fieldSelector=metadata.name%3Dnode-1") && line.contains("allowWatchBookmarks=true"));
        if line.contains("resourceVersion=5") {
            return (200, vec![event("MODIFIED", "6"), event("DELETED", "8")], false);
        }
        assert!(line.contains("resourceVersion=8"), "{line}");
        (200, vec![event("ADDED", "9")], true)
    });
    assert_eq!(told(client, 4).await, ["Ready", "R: PLEG", "gone", "R: PLEG"]);
    assert_eq!(lines.lock().unwrap().len(), 3, "one list and two watches: {lines:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_begins_anew_with_a_list() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    let client = mock_streaming(move |line| {
        if line.contains("watch=true") {
            let gone = json!({"type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "too old",
                "reason": "Expired", "code": 410,
            }});
            return (200, vec![gone], false);
        }
        counted.fetch_add(1, Ordering::Relaxed);
        (200, vec![list(&[], "5")], false)
    });
    assert_eq!(told(client, 3).await, ["gone", "gone", "gone"]);
    assert_eq!(lists.load(Ordering::Relaxed), 3);
}

/// C125: a server that accepts and never says anything.
#[tokio::test(start_paused = true)]
async fn silence_and_refusals_are_told_with_their_reason() {
    let silent = mock_streaming(|line| {
        if line.contains("watch=true") {
            return (200, vec![], true);
        }
        (200, vec![list(&[object("True", "", "2026-11-30T12:00:00Z")], "5")], false)
    });
    let words = told(silent, 2).await;
    assert!(words[1].contains("did not answer within 150 s"), "{words:?}");
    let begin = tokio::time::Instant::now();
    let away = mock(|_| {
        let status = json!({"kind": "Status", "status": "Failure", "message": "etcd is away", "code": 503});
        (503, status)
    });
    assert!(told(away, 4).await.iter().all(|word| word.contains("etcd is away")));
    assert_eq!(begin.elapsed().as_secs(), 1 + 2 + 4, "more and more slowly");
}

/// C109: when the credentials changed, the next request is made with the new ones.
#[tokio::test(start_paused = true)]
async fn new_credentials_begin_a_new_watch_at_once() {
    let watches = Arc::new(AtomicUsize::new(0));
    let counted = watches.clone();
    let client = mock_streaming(move |line| {
        if line.contains("watch=true") {
            counted.fetch_add(1, Ordering::Relaxed);
            return (200, vec![], true);
        }
        (200, vec![list(&[], "5")], false)
    });
    let node = NodeClient::with_client(client, "node-1");
    let credentials = Notify::new();
    let renew = async {
        while watches.load(Ordering::Relaxed) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            credentials.notify_one();
        }
    };
    tokio::select! {
        _ = node.watch(&credentials, &|_| ()) => {}
        () = renew => {}
    }
}
