//! `cargo xtask dist`: the release as users get it: one static program, its symbols in a file beside it.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Builds the release and says where it is.
///
/// # Errors
/// When it does not build, or what was built is not static.
pub fn run(root: &Path) -> Result<ExitCode> {
    let program = build(root)?;
    println!("{} ({} bytes)", program.display(), std::fs::metadata(&program)?.len());
    Ok(ExitCode::SUCCESS)
}

/// Addresses that the start of the program has to mend are packed: half a megabyte less. The C library that is linked in
/// understands it from glibc 2.36 on; an older one would end in its first instructions, so the program is run once.
const PACKED: &str = "link-arg=-Wl,-z,pack-relative-relocs";

/// The release: `target/dist/aks-flex-node`, stripped, and `aks-flex-node.debug` with its symbols.
///
/// # Errors
/// As [`run`].
pub fn build(root: &Path) -> Result<PathBuf> {
    let host = host_triple(root)?;
    // A target is named so that the flags do not reach build scripts and macros, which cannot be static.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo.args(["rustc", "--release", "--quiet", "--package", "aks-flex-node", "--bin", "aks-flex-node"]);
    must(cargo.args(["--target", &host, "--", "-C", PACKED]))?;
    let built = root.join("target").join(&host).join("release/aks-flex-node");
    let dist = root.join("target/dist");
    std::fs::create_dir_all(&dist)?;
    let (program, symbols) = (dist.join("aks-flex-node"), dist.join("aks-flex-node.debug"));
    must(Command::new("objcopy").arg("--only-keep-debug").arg(&built).arg(&symbols))?;
    must(Command::new("objcopy").arg("--strip-all").arg(&built).arg(&program))?;
    must(
        Command::new("objcopy").arg("--add-gnu-debuglink=aks-flex-node.debug").arg("aks-flex-node").current_dir(&dist),
    )?;
    let headers = Command::new("readelf").arg("--program-headers").arg(&program).output().context("readelf")?;
    let headers = String::from_utf8_lossy(&headers.stdout).into_owned();
    ensure!(headers.contains("LOAD") && !headers.contains("INTERP"), "{} asks for a dynamic loader", program.display());
    must(Command::new(&program).arg("version").stdout(Stdio::null()))?;
    Ok(program)
}

fn must(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn host_triple(root: &Path) -> Result<String> {
    let out = Command::new(env!("CARGO")).arg("-vV").current_dir(root).output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines().find_map(|l| l.strip_prefix("host: ")).map(str::to_owned).context("cargo -vV names no host")
}
