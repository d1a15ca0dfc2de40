//! CRI over a Unix socket: gRPC on one HTTP/2 connection per call. A socket on the same machine is opened in
//! microseconds, and a connection that is not kept cannot be stale after the runtime was restarted.

use super::{Cri, Image, RuntimeStatus, RuntimeVersion, Sandbox, SandboxState, wire};
use crate::HostError;
use async_trait::async_trait;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

/// Answers are lists of sandboxes and images; this is what kubelet accepts of them.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// The runtime behind a Unix socket.
#[derive(Clone, Debug)]
pub struct CriSocket {
    path: PathBuf,
}

impl CriSocket {
    /// The runtime that listens at `path`, normally [`super::CONTAINERD_SOCKET`]. Nothing is opened before a call.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// One call. `None` when the runtime says that what was named does not exist.
    async fn call<Q, A>(&self, method: &'static str, request: Q, deadline: Duration) -> Result<Option<A>, HostError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let what = || format!("{method} of the container runtime at {}", self.path.display());
        match tokio::time::timeout(deadline, self.exchange(method, request)).await {
            Err(_) => Err(HostError::Deadline { what: what(), after: deadline }),
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(CallError::Connect(e))) => Err(self.connect_error(&e)),
            Ok(Err(CallError::Http(e))) => Err(HostError::Failed { what: what(), reason: e.to_string() }),
            Ok(Err(CallError::Status(s))) if s.code() == Code::NotFound => Ok(None),
            Ok(Err(CallError::Status(s))) if s.code() == Code::Unimplemented => Err(HostError::Failed {
                what: what(),
                reason:
                    "it does not speak CRI v1 (containerd 1.6 or later does, unless its configuration disables the \
                         cri plugin)"
                        .into(),
            }),
            Ok(Err(CallError::Status(s))) => {
                Err(HostError::Failed { what: what(), reason: format!("{:?}: {}", s.code(), s.message()) })
            }
        }
    }

    /// A call whose answer is about nothing in particular: there is always one.
    async fn ask<A>(&self, method: &'static str, deadline: Duration) -> Result<A, HostError>
    where
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.call(method, wire::Empty {}, deadline).await?.ok_or_else(|| HostError::Absent { what: method.to_owned() })
    }

    fn connect_error(&self, e: &io::Error) -> HostError {
        let socket = self.path.display();
        match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                HostError::Absent { what: format!("a container runtime that listens at {socket}") }
            }
            _ => HostError::Failed {
                what: format!("connect to the container runtime at {socket}"),
                reason: e.to_string(),
            },
        }
    }

    async fn exchange<Q, A>(&self, method: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let stream = UnixStream::connect(&self.path).await.map_err(CallError::Connect)?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let driver = Driver(tokio::spawn(async move {
            // Its error reaches the call through the sender.
            let _ = connection.await;
        }));
        let service = tower::service_fn(move |request: Request<tonic::body::Body>| {
            let mut sender = sender.clone();
            async move {
                let answer: Response<hyper::body::Incoming> = sender.send_request(request).await?;
                Ok::<_, hyper::Error>(answer)
            }
        });
        let mut grpc = tonic::client::Grpc::with_origin(service, Uri::from_static("http://cri"))
            .max_decoding_message_size(MAX_ANSWER);
        grpc.ready().await?;
        let codec = tonic_prost::ProstCodec::<Q, A>::new();
        let answer = grpc
            .unary(tonic::Request::new(request), PathAndQuery::from_static(method), codec)
            .await
            .map_err(|status| CallError::Status(Box::new(status)))?;
        drop(driver);
        Ok(answer.into_inner())
    }
}

/// The task that moves the connection's bytes; it ends with the call, also when that is dropped at its deadline.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum CallError {
    Connect(io::Error),
    Http(hyper::Error),
    Status(Box<Status>),
}

impl From<hyper::Error> for CallError {
    fn from(e: hyper::Error) -> Self {
        CallError::Http(e)
    }
}

#[async_trait]
impl Cri for CriSocket {
    async fn version(&self, deadline: Duration) -> Result<RuntimeVersion, HostError> {
        let answer: wire::VersionResponse = self.ask("/runtime.v1.RuntimeService/Version", deadline).await?;
        Ok(RuntimeVersion {
            name: answer.runtime_name,
            version: answer.runtime_version,
            api_version: answer.runtime_api_version,
        })
    }

    async fn status(&self, deadline: Duration) -> Result<RuntimeStatus, HostError> {
        let answer: wire::StatusResponse = self.ask("/runtime.v1.RuntimeService/Status", deadline).await?;
        Ok(read_status(answer))
    }

    async fn list_sandboxes(&self, deadline: Duration) -> Result<Vec<Sandbox>, HostError> {
        let answer: wire::ListPodSandboxResponse =
            self.ask("/runtime.v1.RuntimeService/ListPodSandbox", deadline).await?;
        Ok(answer.items.into_iter().map(read_sandbox).collect())
    }

    async fn stop_sandbox(&self, id: &str, deadline: Duration) -> Result<(), HostError> {
        let request = wire::PodSandboxIdRequest { pod_sandbox_id: id.to_owned() };
        self.call::<_, wire::Empty>("/runtime.v1.RuntimeService/StopPodSandbox", request, deadline).await.map(drop)
    }

    async fn remove_sandbox(&self, id: &str, deadline: Duration) -> Result<(), HostError> {
        let request = wire::PodSandboxIdRequest { pod_sandbox_id: id.to_owned() };
        self.call::<_, wire::Empty>("/runtime.v1.RuntimeService/RemovePodSandbox", request, deadline).await.map(drop)
    }

    async fn list_images(&self, deadline: Duration) -> Result<Vec<Image>, HostError> {
        let answer: wire::ListImagesResponse = self.ask("/runtime.v1.ImageService/ListImages", deadline).await?;
        Ok(answer.images.into_iter().map(read_image).collect())
    }

    async fn image_status(&self, reference: &str, deadline: Duration) -> Result<Option<Image>, HostError> {
        let request = wire::ImageStatusRequest { image: Some(wire::ImageSpec { image: reference.to_owned() }) };
        let answer: Option<wire::ImageStatusResponse> =
            self.call("/runtime.v1.ImageService/ImageStatus", request, deadline).await?;
        Ok(answer.and_then(|a| a.image).map(read_image))
    }

    async fn pull_image(&self, reference: &str, deadline: Duration) -> Result<(), HostError> {
        let method = "/runtime.v1.ImageService/PullImage";
        let request = wire::PullImageRequest { image: Some(wire::ImageSpec { image: reference.to_owned() }) };
        // Not found is no success here, as it is where something is taken away.
        match self.call::<_, wire::Empty>(method, request, deadline).await? {
            Some(_) => Ok(()),
            None => Err(HostError::Absent { what: format!("the image {reference} in its registry") }),
        }
    }
}

fn read_status(answer: wire::StatusResponse) -> RuntimeStatus {
    let mut status = RuntimeStatus::default();
    for condition in answer.status.unwrap_or_default().conditions {
        match condition.kind.as_str() {
            "RuntimeReady" => status.runtime_ready = condition.status,
            "NetworkReady" => status.network_ready = condition.status,
            // containerd 2 adds conditions such as ContainerdHasNoDeprecationWarnings: not about readiness.
            _ => continue,
        }
        if !condition.status {
            status.reasons.push(match condition.message.as_str() {
                "" => condition.reason,
                message => format!("{}: {message}", condition.reason),
            });
        }
    }
    status
}

fn read_sandbox(sandbox: wire::PodSandbox) -> Sandbox {
    let metadata = sandbox.metadata.unwrap_or_default();
    Sandbox {
        id: sandbox.id,
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        state: if sandbox.state == 0 { SandboxState::Ready } else { SandboxState::NotReady },
        // Every i64 of nanoseconds is a time between 1677 and 2262.
        created: jiff::Timestamp::from_nanosecond(i128::from(sandbox.created_at)).unwrap_or_default(),
    }
}

fn read_image(image: wire::Image) -> Image {
    Image { id: image.id, tags: image.repo_tags, digests: image.repo_digests, size: image.size, pinned: image.pinned }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
