//! Importing the images of the source into containerd.

use super::goal::Source;
use flexnode_artifacts::Artifact;
use flexnode_host::cri::{CONTAINERD_SOCKET, Cri, READ_DEADLINE};
use flexnode_host::{Command, Host, poll};
use flexnode_ops::{Outcome, StepContext, StepError};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The namespace of containerd that kubelet's images are in.
const NAMESPACE: &str = "k8s.io";
const IMPORT_DEADLINE: Duration = Duration::from_mins(10);
/// How long the runtime may take to hear of an import, and how often it is asked.
const APPEARS: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(20);

/// Imports each image of the source that containerd does not have by its name. The archive is compared with its digest
/// right before; the import is looked at through the CRI, as kubelet will.
pub async fn import(
    host: &Host,
    cri: &dyn Cri,
    source: Option<&Source>,
    bin: &Path,
    cx: &StepContext,
) -> Result<Outcome, StepError> {
    let Some(source) = source else { return Ok(Outcome::Unchanged) };
    let mut imported = Vec::new();
    for artifact in source.resolved.images() {
        let Some(image) = artifact.image.as_deref() else { continue };
        if has(cri, image).await? {
            continue;
        }
        cx.note(&format!("importing {image}"));
        import_one(host, source, artifact, bin).await?;
        if !appears(host, cri, image).await? {
            return Err(StepError::new(format!("the archive {} holds no image {image}", artifact.source.display()))
                .hint("make the bundle again with an archive of that image"));
        }
        imported.push(image.to_string());
    }
    Ok(if imported.is_empty() { Outcome::Unchanged } else { Outcome::Changed(imported.join(", ")) })
}

/// Waits until the runtime knows the image: it learns of an import from an event, a moment after it.
async fn appears(host: &Host, cri: &dyn Cri, image: &str) -> Result<bool, StepError> {
    let known = poll(host.clock.as_ref(), SOON, APPEARS, || async { Ok(has(cri, image).await?.then_some(())) });
    Ok(known.await?.is_some())
}

async fn has(cri: &dyn Cri, image: &str) -> Result<bool, StepError> {
    let found = cri.image_status(image, READ_DEADLINE).await;
    Ok(found
        .map_err(|e| StepError::caused(format!("containerd does not tell whether it has the image {image}"), e))?
        .is_some())
}

async fn import_one(host: &Host, source: &Source, artifact: &Artifact, bin: &Path) -> Result<(), StepError> {
    let (bundle, wanted) = (source.bundle.clone(), artifact.clone());
    let archive = tokio::task::spawn_blocking(move || bundle.verified_image(&wanted))
        .await
        .map_err(|e| StepError::caused("the check of an image archive was ended", e))?
        .map_err(|e| StepError::caused(format!("the image archive {} was refused", artifact.path), e))?;
    let args = ["--address", CONTAINERD_SOCKET, "--namespace", NAMESPACE, "images", "import"];
    let command = Command {
        program: bin.join("ctr"),
        args: args.into_iter().map(String::from).chain([archive.display().to_string()]).collect(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        deadline: IMPORT_DEADLINE,
        max_output: 16 << 10,
    };
    let failed = |reason: String| StepError::new(format!("{} could not be imported: {reason}", archive.display()));
    let output = host
        .commands
        .run(&command)
        .await
        .map_err(|e| StepError::caused(format!("{} could not be imported", archive.display()), e))?;
    if output.code == Some(0) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason was given");
    Err(failed(last.to_string()).hint("journalctl -u unbounded-containerd tells more"))
}
