//! Start time and memory of the commands that touch nothing.

use super::{Measure, milliseconds};
use anyhow::{Context as _, Result, ensure};
use flexnode_lab::prerequisites;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Times `version` and `--help` against `/bin/true`, and reads their peak memory.
pub fn measure(program: &Path, pairs: usize) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for word in ["version", "--help"] {
        let mut times = Vec::new();
        once(program, &[word])?; // The first run reads the program from the disk.
        for _ in 0..pairs {
            times.push((once(program, &[word])?, once(Path::new("/bin/true"), &[])?));
        }
        measures.push(Measure::paired(&format!("program: time of {word}"), &times, "ms", 3.0));
        measures.push(Measure::absolute(&format!("program: peak memory of {word}"), peak(program, word)?, "MB", 8.0));
    }
    Ok(measures)
}

fn once(program: &Path, words: &[&str]) -> Result<f64> {
    let begin = Instant::now();
    let status = Command::new(program)
        .args(words)
        .stdout(Stdio::null())
        .status()
        .with_context(|| program.display().to_string())?;
    let took = milliseconds(begin.elapsed());
    ensure!(status.success(), "{}: {status}", program.display());
    Ok(took)
}

/// Peak resident memory as the kernel accounts it to a process that has ended, told by time(1).
fn peak(program: &Path, word: &str) -> Result<f64> {
    let time = prerequisites::find_program("time").context("the program time")?;
    let out = Command::new(time)
        .args(["-q", "-f", "%M"])
        .arg(program)
        .arg(word)
        .stdout(Stdio::null())
        .output()
        .context("cannot run time")?;
    let kilobytes: f64 = String::from_utf8_lossy(&out.stderr).trim().parse().context("peak memory")?;
    Ok(kilobytes * 1024.0 / 1e6)
}
