//! The one way in which the lab waits for a state.

use crate::interrupt;
use anyhow::{Context as _, Result, anyhow};
use std::time::{Duration, Instant};

/// Calls `check` every `every` until it gives a value, for at most `limit`. `what` completes the sentence "waited … s for".
///
/// `Ok(None)` and `Err` both mean not yet; the last error is the cause of the one that is returned at the deadline.
pub fn poll<T>(
    limit: Duration,
    every: Duration,
    what: &str,
    mut check: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let answer = check();
        if let Ok(Some(value)) = answer {
            return Ok(value);
        }
        interrupt::check().with_context(|| format!("while waiting for {what}"))?;
        if Instant::now() >= end {
            let told = format!("waited {:.1} s for {what}", limit.as_secs_f32());
            return Err(match answer {
                Err(cause) => cause.context(told),
                Ok(_) => anyhow!(told),
            });
        }
        pause(every.min(end.saturating_duration_since(Instant::now())));
    }
}

/// The pause between two looks at a state.
#[expect(clippy::disallowed_methods, reason = "the one place that pauses: inside a wait for a state with a deadline")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::poll;
    use std::time::Duration;

    #[test]
    fn says_what_it_waited_for_and_why_it_was_not_there() {
        let error =
            poll(Duration::from_millis(20), Duration::from_millis(1), "the cow", || -> anyhow::Result<Option<()>> {
                anyhow::bail!("no grass")
            })
            .unwrap_err();
        assert_eq!(format!("{error:#}"), "waited 0.0 s for the cow: no grass");
    }

    #[test]
    fn gives_the_value_that_comes_later() {
        let mut calls = 0;
        let value = poll(Duration::from_secs(10), Duration::from_millis(1), "the third call", || {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        });
        assert_eq!(value.unwrap(), 3);
    }
}
