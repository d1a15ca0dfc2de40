//! Watches kubelet's health from outside of what is measured, the same way for the agent and for what it is compared with.

use anyhow::{Context as _, Result};
use flexnode_lab::{Host, poll};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// kubelet's health endpoint, on the host's loopback.
const HEALTHZ: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10248);
/// Between two looks: the resolution of the figure.
const EVERY: Duration = Duration::from_millis(5);
/// Nothing that is watched takes longer.
const LONGEST: Duration = Duration::from_mins(20);
/// A look that takes longer is a no.
const LOOK: Duration = Duration::from_millis(500);

/// One look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// When the answer was there, in milliseconds since the epoch.
    pub at: f64,
    /// Whether it was `ok`.
    pub ok: bool,
}

/// Runs `work` and watches meanwhile.
pub fn during<T>(host: &Host, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Look>)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| host.in_network(|| looks(&over)));
        let worked = work();
        over.store(true, Ordering::Relaxed);
        let looks = watch.join().map_err(|_| anyhow::anyhow!("the watch over healthz panicked"))???;
        Ok((worked?, looks))
    })
}

fn looks(over: &AtomicBool) -> Result<Vec<Look>> {
    let mut looks = Vec::new();
    poll(LONGEST, EVERY, "the work under the watch", || {
        let ok = ask().unwrap_or(false);
        looks.push(Look { at: now(), ok });
        Ok(over.load(Ordering::Relaxed).then_some(()))
    })?;
    Ok(looks)
}

fn ask() -> std::io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&HEALTHZ, LOOK)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.0 200") && answer.ends_with("ok"))
}

/// Now, in milliseconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

/// How long it took from `from` until kubelet answered again after it had stopped answering. From a moment at which it does
/// not answer already, until it answers.
pub fn back_after(from: f64, looks: &[Look]) -> Result<f64> {
    let mut after = looks.iter().filter(|look| look.at >= from).skip_while(|look| look.ok);
    after.next().context("kubelet was never seen down")?;
    let back = after.find(|look| look.ok).context("kubelet did not answer again")?;
    Ok(back.at - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_ends_with_the_first_answer_after_the_silence() {
        let looks: Vec<Look> = [(0.0, true), (5.0, true), (10.0, false), (15.0, false), (20.0, true), (25.0, true)]
            .map(|(at, ok)| Look { at, ok })
            .to_vec();
        assert!((back_after(2.0, &looks).unwrap() - 18.0).abs() < 0.01);
        assert!((back_after(12.0, &looks).unwrap() - 8.0).abs() < 0.01);
        assert!(back_after(18.0, &looks).is_err());
        assert!(back_after(2.0, &looks[..4]).is_err());
    }
}
