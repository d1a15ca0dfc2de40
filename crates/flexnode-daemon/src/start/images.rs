//! Importing the images of the source into containerd.

use super::goal::Source;
use flexnode_artifacts::{Artifact, VerifiedImage};
use flexnode_host::cri::{CONTAINERD_SOCKET, Cri, READ_DEADLINE};
use flexnode_host::{Command, Host, poll};
use flexnode_ops::{Outcome, StepContext, StepError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The namespace of containerd that kubelet's images are in.
const NAMESPACE: &str = "k8s.io";
const IMPORT_DEADLINE: Duration = Duration::from_mins(10);
/// How long the runtime may take to hear of an import, and how often it is asked.
const APPEARS: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(20);

/// What was found of the archives in this run, by their place in the source: an upgrade asks a second time, while the node
/// is down, and has no time for reading them again.
pub type Looked = Mutex<BTreeMap<String, VerifiedImage>>;

/// Imports each image of the source that containerd does not have, or has with another content under the same name. The
/// archive is compared with its digest right before; the import is looked at through the CRI, as kubelet will.
pub async fn import(
    host: &Host,
    cri: &dyn Cri,
    source: Option<&Source>,
    bin: &Path,
    looked: &Looked,
    cx: &StepContext,
) -> Result<Outcome, StepError> {
    let Some(source) = source else { return Ok(Outcome::Unchanged) };
    let mut imported = Vec::new();
    for artifact in source.resolved.images() {
        let Some(image) = artifact.image.as_deref() else { continue };
        let known = looked.lock().unwrap_or_else(PoisonError::into_inner).get(&artifact.path).cloned();
        if let Some(known) = known
            && has(cri, image, &known).await?
        {
            continue;
        }
        let verified = match verify(source, artifact).await {
            Ok(verified) => verified,
            // An archive that spoiled does no harm to a node that has the image.
            Err(error) if by_name(cri, image).await? => {
                cx.note(&format!("{error}; containerd has an image of that name"));
                continue;
            }
            Err(error) => return Err(error),
        };
        looked.lock().unwrap_or_else(PoisonError::into_inner).insert(artifact.path.clone(), verified.clone());
        if has(cri, image, &verified).await? {
            continue;
        }
        cx.note(&format!("importing {image}"));
        import_one(host, &verified.archive, bin).await?;
        if !appears(host, cri, image, &verified).await? {
            return Err(StepError::new(format!("the archive {} holds no image {image}", artifact.source.display()))
                .hint("make the bundle again with an archive of that image"));
        }
        imported.push(image.to_string());
    }
    Ok(if imported.is_empty() { Outcome::Unchanged } else { Outcome::Changed(imported.join(", ")) })
}

async fn verify(source: &Source, artifact: &Artifact) -> Result<VerifiedImage, StepError> {
    let (bundle, wanted) = (source.bundle.clone(), artifact.clone());
    tokio::task::spawn_blocking(move || bundle.verified_image(&wanted))
        .await
        .map_err(|e| StepError::caused("the check of an image archive was ended", e))?
        .map_err(|e| StepError::caused(format!("the image archive {} was refused", artifact.path), e))
}

async fn by_name(cri: &dyn Cri, image: &str) -> Result<bool, StepError> {
    let anything = VerifiedImage { archive: PathBuf::new(), identifiers: BTreeSet::new() };
    has(cri, image, &anything).await
}

/// Waits until the runtime knows the image: it learns of an import from an event, a moment after it.
async fn appears(host: &Host, cri: &dyn Cri, image: &str, verified: &VerifiedImage) -> Result<bool, StepError> {
    let known =
        poll(host.clock.as_ref(), SOON, APPEARS, || async { Ok(has(cri, image, verified).await?.then_some(())) });
    Ok(known.await?.is_some())
}

/// Whether the runtime has the image with this content; by its name alone where the archive does not tell its content.
async fn has(cri: &dyn Cri, image: &str, verified: &VerifiedImage) -> Result<bool, StepError> {
    let found = cri.image_status(image, READ_DEADLINE).await;
    let found = found
        .map_err(|e| StepError::caused(format!("containerd does not tell whether it has the image {image}"), e))?;
    Ok(found.is_some_and(|found| verified.identifiers.is_empty() || verified.identifiers.contains(&found.id)))
}

async fn import_one(host: &Host, archive: &Path, bin: &Path) -> Result<(), StepError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use flexnode_host::cri::Image;
    use flexnode_host::cri::fake::FakeCri;

    const NAME: &str = "a.b/pause:1";

    fn runtime(id: &str) -> FakeCri {
        let cri = FakeCri::default();
        cri.add_image(Image { id: id.into(), tags: vec![NAME.into()], ..Image::default() });
        cri
    }

    fn verified(ids: &[&str]) -> VerifiedImage {
        let identifiers = ids.iter().map(ToString::to_string).collect();
        VerifiedImage { archive: "/srv/pause.tar".into(), identifiers }
    }

    #[tokio::test]
    async fn another_content_under_the_same_name_is_not_the_image() -> Result<(), StepError> {
        let cri = runtime("sha256:old");
        assert!(has(&cri, NAME, &verified(&["sha256:other", "sha256:old"])).await?);
        assert!(!has(&cri, NAME, &verified(&["sha256:new"])).await?);
        assert!(!has(&cri, "a.b/none:1", &verified(&[])).await?);
        // An archive that does not tell its content is told by its name.
        assert!(has(&cri, NAME, &verified(&[])).await?);
        Ok(())
    }

    #[tokio::test]
    async fn a_runtime_that_does_not_answer_is_an_error() {
        let cri = runtime("sha256:old");
        cri.set_running(false);
        let error = has(&cri, NAME, &verified(&[])).await.unwrap_err();
        assert!(error.to_string().contains(NAME), "{error}");
    }
}
