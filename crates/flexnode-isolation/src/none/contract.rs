//! The trait that every backend has, on this one.

use super::node::Backend;
use crate::backend::{
    self, Error, ExecRequest, LogRequest, LogSink, Mode, NodeRoot, NodeSpec, Requirements, SlotRef, Status,
};
use async_trait::async_trait;
use flexnode_host::Output;

/// There is one stack on a host: which slot is meant matters to `activate` only.
#[async_trait]
impl backend::Backend for Backend {
    fn mode(&self) -> Mode {
        Backend::mode(self)
    }

    fn requirements(&self) -> Requirements {
        Backend::requirements(self)
    }

    fn preflight(&self) -> Result<(), Error> {
        Ok(Backend::preflight(self)?)
    }

    async fn prepare(&self, spec: &NodeSpec) -> Result<Box<dyn NodeRoot>, Error> {
        Ok(Box::new(Backend::prepare(self, spec).await?))
    }

    async fn activate(&self, slot: &dyn SlotRef) -> Result<Option<String>, Error> {
        Backend::activate(self, slot).await
    }

    async fn start(&self, _: &dyn SlotRef) -> Result<(), Error> {
        Backend::start(self).await
    }

    async fn stop(&self, _: &dyn SlotRef) -> Result<(), Error> {
        Backend::stop(self).await
    }

    async fn restart(&self, _: &dyn SlotRef) -> Result<(), Error> {
        Backend::restart(self).await
    }

    async fn status(&self, _: &dyn SlotRef) -> Result<Status, Error> {
        Backend::status(self).await
    }

    async fn exec(&self, _: &dyn SlotRef, request: &ExecRequest) -> Result<Output, Error> {
        Backend::exec(self, request).await
    }

    async fn logs(&self, _: &dyn SlotRef, request: &LogRequest, sink: &mut LogSink<'_>) -> Result<(), Error> {
        Backend::logs(self, request, sink).await
    }

    async fn destroy(&self, _: &dyn SlotRef) -> Result<(), Error> {
        Backend::destroy(self).await
    }
}
