//! Logs go to standard error; the service manager adds the time. Only this project's own modules log below warnings:
//! what libraries log in detail may hold header values.

use crate::cli::LogLevel;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The modules of this project.
const OURS: [&str; 2] = ["flexnode_", "aks_flex_node"];

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

/// What passes at `level`.
fn targets(level: LevelFilter) -> Targets {
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_targets(OURS.map(|ours| (ours, level)))
}

/// Begins logging. The first call of a process counts; later ones do nothing.
pub fn begin(level: LevelFilter) {
    let lines = tracing_subscriber::fmt::layer().without_time().with_ansi(false).with_writer(std::io::stderr);
    let _ = tracing_subscriber::registry().with(targets(level)).with(lines).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn libraries_log_warnings_only() {
        let targets = targets(LevelFilter::TRACE);
        assert!(targets.would_enable("flexnode_daemon::start", &Level::TRACE));
        assert!(targets.would_enable("aks_flex_node", &Level::DEBUG));
        assert!(targets.would_enable("hyper_util::client", &Level::WARN));
        assert!(!targets.would_enable("hyper_util::client", &Level::INFO));
        assert!(!super::targets(LevelFilter::ERROR).would_enable("kube_client", &Level::WARN));
    }
}
