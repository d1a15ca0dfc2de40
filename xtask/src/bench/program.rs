//! Start time and memory of the commands that touch nothing.

use super::{Measure, milliseconds};
use anyhow::{Context as _, Result, ensure};
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

/// Peak resident memory as the kernel accounts it: a small Python program waits for the child and asks.
fn peak(program: &Path, word: &str) -> Result<f64> {
    let script = "import os,resource,sys\npid=os.fork()\nif pid==0:\n os.dup2(os.open('/dev/null',1),1)\n os.execv(sys.argv[1],sys.argv[1:])\n\
        print(os.wait4(pid,0)[2].ru_maxrss)";
    let out = Command::new("python3").args(["-c", script]).arg(program).arg(word).output().context("python3")?;
    let kilobytes: f64 = String::from_utf8_lossy(&out.stdout).trim().parse().context("peak memory")?;
    Ok(kilobytes * 1024.0 / 1e6)
}
