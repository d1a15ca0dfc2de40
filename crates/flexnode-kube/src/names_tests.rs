//! Against files of our own and a DNS server on loopback.

use super::*;
use hickory_resolver::proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record};
use std::time::Duration;
use tokio::net::UdpSocket;

struct Zone {
    dir: tempfile::TempDir,
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Zone {
    /// A DNS server that knows these names and no others; without any it never answers.
    async fn serve(names: &'static [(&'static str, &'static str)]) -> Zone {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = asked.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let (read, from) = socket.recv_from(&mut buffer).await.unwrap();
                let request = Message::from_vec(&buffer[..read]).unwrap();
                seen.lock().unwrap().push(request.queries[0].name().to_string());
                if !names.is_empty() {
                    socket.send_to(&reply(&request, names).to_vec().unwrap(), from).await.unwrap();
                }
            }
        });
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("resolv.conf"),
            "search lab.test\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
        )
        .unwrap();
        Zone { dir, port, asked }
    }

    fn names(&self) -> Names {
        Names::from_files(self.dir.path().join("hosts"), self.dir.path().join("resolv.conf"), self.port)
    }

    fn hosts(&self, text: &str) {
        std::fs::write(self.dir.path().join("hosts"), text).unwrap();
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn reply(request: &Message, names: &[(&str, &str)]) -> Message {
    let query = request.queries[0].clone();
    let name = query.name().to_string();
    let mut reply = Message::new(request.metadata.id, MessageType::Response, OpCode::Query);
    reply.metadata.recursion_desired = true;
    reply.metadata.recursion_available = true;
    reply.add_query(query.clone());
    let known: Vec<IpAddr> =
        names.iter().filter(|(n, _)| *n == name.trim_end_matches('.')).map(|(_, ip)| ip.parse().unwrap()).collect();
    if known.is_empty() {
        reply.metadata.response_code = ResponseCode::NXDomain;
    }
    for ip in known.iter().filter(|ip| ip.is_ipv4() == (query.query_type() == RecordType::A)) {
        reply.add_answer(Record::from_rdata(query.name().clone(), 60, RData::from(*ip)));
    }
    reply
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_literal_address_asks_nobody() {
    let zone = Zone::serve(&[]).await;
    let names = zone.names();
    assert_eq!(names.resolve("192.0.2.7").await.unwrap(), ips(&["192.0.2.7"]));
    assert_eq!(names.resolve("[2001:db8::1]").await.unwrap(), ips(&["2001:db8::1"]));
    assert_eq!(names.resolve("2001:db8::1").await.unwrap(), ips(&["2001:db8::1"]));
    assert!(zone.asked().is_empty());
}

#[tokio::test]
async fn the_hosts_file_wins_and_is_read_again() {
    let zone = Zone::serve(&[("api.lab.test", "192.0.2.1")]).await;
    zone.hosts("127.0.0.1 localhost\n# a comment\n192.0.2.9\tAPI.lab.test api # ours\n2001:db8::9 api\n");
    let names = zone.names();
    assert_eq!(names.resolve("api").await.unwrap(), ips(&["192.0.2.9", "2001:db8::9"]));
    assert_eq!(names.resolve("api.lab.test").await.unwrap(), ips(&["192.0.2.9"]));
    assert_eq!(names.resolve("Api.Lab.Test").await.unwrap(), ips(&["192.0.2.9"]));
    assert!(zone.asked().is_empty(), "no family of a name in the file goes to DNS");
    zone.hosts("192.0.2.10 api\n");
    assert_eq!(names.resolve("api").await.unwrap(), ips(&["192.0.2.10"]));
}

#[tokio::test]
async fn dns_gives_both_families_and_knows_the_search_list() {
    let zone = Zone::serve(&[("api.lab.test", "192.0.2.1"), ("api.lab.test", "2001:db8::1")]).await;
    let names = zone.names();
    assert_eq!(names.resolve("api.lab.test").await.unwrap(), ips(&["192.0.2.1", "2001:db8::1"]));
    assert_eq!(names.resolve("api").await.unwrap(), ips(&["192.0.2.1", "2001:db8::1"]));
    assert!(zone.asked().contains(&"api.lab.test.".to_owned()));
}

#[tokio::test]
async fn a_name_that_does_not_exist_says_who_was_asked() {
    let zone = Zone::serve(&[("api.lab.test", "192.0.2.1")]).await;
    let error = zone.names().resolve("apx.lab.test").await.unwrap_err();
    assert!(matches!(error, NameError::NotFound { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("apx.lab.test") && text.contains(&format!("127.0.0.1:{}", zone.port)), "{text}");
}

#[tokio::test]
async fn a_silent_server_is_not_a_missing_name() {
    let zone = Zone::serve(&[]).await;
    let answer = tokio::time::timeout(Duration::from_secs(30), zone.names().resolve("api.lab.test")).await.unwrap();
    assert!(matches!(answer, Err(NameError::NoAnswer { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_changed_resolv_conf_counts_at_once() {
    let zone = Zone::serve(&[("api.lab.test", "192.0.2.1"), ("api.other.test", "192.0.2.2")]).await;
    let names = zone.names();
    assert_eq!(names.resolve("api").await.unwrap(), ips(&["192.0.2.1"]));
    std::fs::write(zone.dir.path().join("resolv.conf"), "search other.test\nnameserver 127.0.0.1\n").unwrap();
    assert_eq!(names.resolve("api").await.unwrap(), ips(&["192.0.2.2"]));
}

#[tokio::test]
async fn without_files_the_server_is_this_machine() {
    let zone = Zone::serve(&[("api.lab.test", "192.0.2.1")]).await;
    std::fs::remove_file(zone.dir.path().join("resolv.conf")).unwrap();
    assert_eq!(zone.names().resolve("api.lab.test").await.unwrap(), ips(&["192.0.2.1"]));
}

#[tokio::test]
async fn nonsense_is_not_asked_for() {
    let zone = Zone::serve(&[("api.lab.test", "192.0.2.1")]).await;
    let error = zone.names().resolve("a..b").await.unwrap_err();
    assert!(matches!(error, NameError::Invalid { .. }), "{error}");
    assert!(zone.asked().is_empty());
}
