//! The client against a gRPC server that is written by hand, byte by byte as the protocol says: a mistake in our
//! messages cannot hide in code that both sides share.

use super::*;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Clone)]
enum Answer {
    /// The bytes of a message.
    Message(Vec<u8>),
    /// gRPC status code and text.
    Status(u32, &'static str),
    /// Nothing, ever.
    Hang,
}

struct Server {
    _dir: tempfile::TempDir,
    cri: CriSocket,
    /// Bytes of the last request for each method.
    seen: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

fn serve(answers: &[(&str, Answer)]) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cri.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let answers: BTreeMap<String, Answer> = answers.iter().map(|(m, a)| ((*m).to_owned(), a.clone())).collect();
    let seen: Arc<Mutex<BTreeMap<String, Bytes>>> = Arc::default();
    let seen_there = seen.clone();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let (answers, seen) = (answers.clone(), seen_there.clone());
            let service = hyper::service::service_fn(move |request| answer(request, answers.clone(), seen.clone()));
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { connection.await.ok() });
        }
    });
    Server { _dir: dir, cri: CriSocket::new(path), seen }
}

type Body = StreamBody<futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn answer(
    request: Request<Incoming>,
    answers: BTreeMap<String, Answer>,
    seen: Arc<Mutex<BTreeMap<String, Bytes>>>,
) -> Result<Response<Body>, Infallible> {
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let method = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    assert_eq!((body[0], length), (0, body.len() - 5), "one message that is not compressed");
    seen.lock().unwrap().insert(method.clone(), body.slice(5..));

    let (code, text, message) = match answers.get(&method) {
        Some(Answer::Message(message)) => (0, "", Some(message.clone())),
        Some(Answer::Status(code, text)) => (*code, *text, None),
        Some(Answer::Hang) => std::future::pending().await,
        None => (12, "unknown method", None),
    };
    let mut frames = Vec::new();
    if let Some(message) = message {
        let mut data = BytesMut::new();
        data.put_u8(0);
        data.put_u32(u32::try_from(message.len()).unwrap());
        data.put_slice(&message);
        frames.push(Ok(Frame::data(data.freeze())));
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    trailers.insert("grpc-message", http::HeaderValue::from_static(text));
    frames.push(Ok(Frame::trailers(trailers)));
    let body = StreamBody::new(futures_util::stream::iter(frames));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}

/// A length-delimited field of protocol buffers.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    bytes.extend(varint(content.len() as u64));
    bytes.extend_from_slice(content);
    bytes
}

/// A variable-length integer field.
fn number(field: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    bytes.extend(varint(value));
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

#[tokio::test]
async fn version_is_read() {
    let message =
        join(&[field(1, b"0.1.0"), field(2, b"containerd"), field(3, b"v2.1.9"), field(4, b"v1"), field(9, b"later")]);
    let server = serve(&[("/runtime.v1.RuntimeService/Version", Answer::Message(message))]);
    let version = server.cri.version(DEADLINE).await.unwrap();
    let want = RuntimeVersion { name: "containerd".into(), version: "v2.1.9".into(), api_version: "v1".into() };
    assert_eq!(version, want);
}

#[tokio::test]
async fn status_keeps_why_a_condition_is_false() {
    let ready = join(&[field(1, b"RuntimeReady"), number(2, 1)]);
    let network =
        join(&[field(1, b"NetworkReady"), field(3, b"NetworkPluginNotReady"), field(4, b"cni plugin not initialized")]);
    let other = join(&[field(1, b"ContainerdHasNoDeprecationWarnings"), field(3, b"Old")]);
    let status = join(&[field(1, &ready), field(1, &network), field(1, &other)]);
    let server = serve(&[("/runtime.v1.RuntimeService/Status", Answer::Message(field(1, &status)))]);
    let status = server.cri.status(DEADLINE).await.unwrap();
    assert_eq!((status.runtime_ready, status.network_ready), (true, false));
    assert_eq!(status.reasons, ["NetworkPluginNotReady: cni plugin not initialized"]);
}

#[tokio::test]
async fn sandboxes_are_read_with_pod_and_time() {
    let metadata = join(&[field(1, b"web-1"), field(2, b"uid-1"), field(3, b"shop"), number(4, 2)]);
    let first = join(&[field(1, b"abc"), field(2, &metadata), number(4, 1_700_000_000_000_000_000)]);
    let second = join(&[field(1, b"def"), number(3, 1)]);
    let message = join(&[field(1, &first), field(1, &second)]);
    let server = serve(&[("/runtime.v1.RuntimeService/ListPodSandbox", Answer::Message(message))]);
    let sandboxes = server.cri.list_sandboxes(DEADLINE).await.unwrap();
    assert_eq!(sandboxes.len(), 2);
    assert_eq!(sandboxes[0].pod(), "shop/web-1");
    assert_eq!((sandboxes[0].id.as_str(), sandboxes[0].uid.as_str()), ("abc", "uid-1"));
    assert_eq!(sandboxes[0].state, SandboxState::Ready);
    assert_eq!(sandboxes[0].created.to_string(), "2023-11-14T22:13:20Z");
    assert_eq!(sandboxes[1].state, SandboxState::NotReady);
}

#[tokio::test]
async fn stop_and_remove_name_the_sandbox_and_accept_that_it_is_gone() {
    let server = serve(&[
        ("/runtime.v1.RuntimeService/StopPodSandbox", Answer::Message(Vec::new())),
        ("/runtime.v1.RuntimeService/RemovePodSandbox", Answer::Status(5, "not found")),
    ]);
    server.cri.stop_sandbox("abc", DEADLINE).await.unwrap();
    server.cri.remove_sandbox("abc", DEADLINE).await.unwrap();
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen["/runtime.v1.RuntimeService/StopPodSandbox"], field(1, b"abc"));
    assert_eq!(seen["/runtime.v1.RuntimeService/RemovePodSandbox"], field(1, b"abc"));
}

#[tokio::test]
async fn images_are_listed_and_looked_up() {
    let image = join(&[
        field(1, b"sha256:1"),
        field(2, b"lab/pause:1"),
        field(3, b"lab/pause@sha256:2"),
        number(4, 700),
        number(8, 1),
    ]);
    let server = serve(&[
        ("/runtime.v1.ImageService/ListImages", Answer::Message(field(1, &image))),
        ("/runtime.v1.ImageService/ImageStatus", Answer::Message(field(1, &image))),
    ]);
    let want = Image {
        id: "sha256:1".into(),
        tags: vec!["lab/pause:1".into()],
        digests: vec!["lab/pause@sha256:2".into()],
        size: 700,
        pinned: true,
    };
    assert_eq!(server.cri.list_images(DEADLINE).await.unwrap(), std::slice::from_ref(&want));
    assert_eq!(server.cri.image_status("lab/pause:1", DEADLINE).await.unwrap(), Some(want));
    let asked = server.seen.lock().unwrap()["/runtime.v1.ImageService/ImageStatus"].clone();
    assert_eq!(asked, field(1, &field(1, b"lab/pause:1")));

    let server = serve(&[("/runtime.v1.ImageService/ImageStatus", Answer::Message(Vec::new()))]);
    assert_eq!(server.cri.image_status("lab/pause:2", DEADLINE).await.unwrap(), None);
}

#[tokio::test]
async fn a_pull_names_the_image_and_an_image_that_is_nowhere_is_an_error() {
    let pull = "/runtime.v1.ImageService/PullImage";
    let server = serve(&[(pull, Answer::Message(field(1, b"sha256:1")))]);
    server.cri.pull_image("lab/pause:1", DEADLINE).await.unwrap();
    assert_eq!(server.seen.lock().unwrap()[pull], field(1, &field(1, b"lab/pause:1")));
    let server = serve(&[(pull, Answer::Status(5, "not found"))]);
    assert!(matches!(server.cri.pull_image("lab/pause:2", DEADLINE).await, Err(HostError::Absent { .. })));
    let server = serve(&[(pull, Answer::Status(2, "no such host"))]);
    let error = server.cri.pull_image("lab/pause:2", DEADLINE).await.unwrap_err().to_string();
    assert!(error.contains("no such host"), "{error}");
}

#[tokio::test]
async fn errors_say_what_and_why() {
    let server = serve(&[
        ("/runtime.v1.RuntimeService/StopPodSandbox", Answer::Status(2, "failed to destroy network: plugin is gone")),
        ("/runtime.v1.RuntimeService/Status", Answer::Hang),
    ]);
    let error = server.cri.stop_sandbox("abc", DEADLINE).await.unwrap_err().to_string();
    assert!(error.contains("StopPodSandbox") && error.contains("plugin is gone"), "{error}");
    let error = server.cri.status(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, HostError::Deadline { .. }), "{error}");
    let error = server.cri.version(DEADLINE).await.unwrap_err().to_string();
    assert!(error.contains("does not speak CRI v1"), "{error}");
}

#[tokio::test]
async fn a_socket_that_nobody_serves_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cri.sock");
    let cri = CriSocket::new(&path);
    assert!(matches!(cri.version(DEADLINE).await.unwrap_err(), HostError::Absent { .. }));
    drop(tokio::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a killed runtime leaves its socket");
    assert!(matches!(cri.version(DEADLINE).await.unwrap_err(), HostError::Absent { .. }));
}
