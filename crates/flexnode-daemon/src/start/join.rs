//! Waiting until kubelet has a client certificate of its own.

use super::gates::look;
use super::steps::Parts;
use crate::api::{self, Credential};
use flexnode_isolation::none::UNIT_KUBELET;
use flexnode_ops::{Outcome, StepContext, StepError};
use std::time::Duration;

/// How long a certificate is waited for. A person who approves by hand can run `start` again later.
pub const DEADLINE: Duration = Duration::from_mins(5);

const EVERY: Duration = Duration::from_millis(100);
/// A request that is older than this was not approved by itself.
const PENDING_AFTER: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Waits for the certificate. A request that stays pending is named with the command that approves it.
pub async fn wait(parts: &Parts, cx: &StepContext) -> Result<Outcome, StepError> {
    let clock = parts.host.clock.as_ref();
    let began = clock.monotonic();
    if credential(parts).is_none() {
        return Ok(Outcome::Unchanged);
    }
    cx.note("waiting for kubelet's client certificate");
    let mut asked = began;
    let mut advice: Option<String> = None;
    loop {
        let Some(why) = credential(parts) else {
            return Ok(Outcome::Changed(format!("joined as {}", parts.prepared.goal.node_name)));
        };
        let now = clock.monotonic();
        if now.saturating_sub(began) >= PENDING_AFTER && now.saturating_sub(asked) >= ASK_EVERY {
            asked = now;
            alive(parts).await?;
            let found = parts.cluster.request_advice(ASK_EVERY).await;
            if let Some(advice) = found.as_deref().filter(|_| found != advice) {
                cx.note(advice);
            }
            advice = found;
        }
        if now.saturating_sub(began) >= DEADLINE {
            let error =
                StepError::new(format!("kubelet has no client certificate after {} s: {why}", DEADLINE.as_secs()));
            return Err(match advice {
                Some(advice) => error.hint(format!("{advice}; then run start again")),
                None => error.hint(look(UNIT_KUBELET)),
            });
        }
        clock.sleep(EVERY).await;
    }
}

/// Why kubelet has no valid certificate of its own; `None` when it has.
fn credential(parts: &Parts) -> Option<String> {
    match api::credential(parts.host.fs.as_ref(), parts.host.clock.now()) {
        Credential::Certificate(_) => None,
        Credential::Token(why) => Some(why),
    }
}

/// A kubelet that ended will not join any more.
async fn alive(parts: &Parts) -> Result<(), StepError> {
    let state = parts
        .host
        .systemd
        .unit(UNIT_KUBELET)
        .await
        .map_err(|e| StepError::caused("systemd does not tell of kubelet", e))?;
    if state.active == "failed" || state.active == "inactive" {
        return Err(StepError::new(format!("kubelet is {}, before it joined", state.active)).hint(look(UNIT_KUBELET)));
    }
    Ok(())
}
