//! The command line as data.

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

/// Turns a Linux host with systemd into a Kubernetes node, keeps it one, and takes it away again without a trace.
#[derive(Debug, Parser)]
#[command(name = "aks-flex-node", bin_name = "aks-flex-node", disable_help_subcommand = false, max_term_width = 100)]
#[command(version = crate::version::VERSION, propagate_version = false)]
#[command(
    after_help = "Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 degraded (status); 4 not a node (status); \
5 confirmation needed; 6 another operation runs; 7 failed and rolled back; 8 joined but not Ready in time."
)]
pub struct Cli {
    /// How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says
    #[arg(long, global = true, value_enum, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this host a node of the cluster that the configuration names; running it again changes nothing
    #[command(visible_alias = "bootstrap")]
    Start(StartArgs),
    /// Show what the node is now
    Status(StatusArgs),
    /// Bring the node to what the configuration says, and back by itself when that does not come up
    Upgrade(UpgradeArgs),
    /// Go back to the version that ran before, or to another one that is installed
    Rollback(RollbackArgs),
    /// Restart containerd and kubelet; pods are left alone
    Restart(LifecycleArgs),
    /// Stop containerd and kubelet until `start-node`; a reboot does not start them
    Stop(LifecycleArgs),
    /// Start containerd and kubelet after a `stop`
    StartNode(LifecycleArgs),
    /// The installed versions
    #[command(subcommand)]
    Slots(SlotsCommand),
    /// Take everything away that `start` made; the configuration stays
    #[command(visible_alias = "unbootstrap")]
    Reset(ResetArgs),
    /// Keep the node: what the agent's service runs
    #[command(visible_alias = "agent")]
    Daemon(DaemonArgs),
    /// Print the steps that an operation would run; changes nothing
    Plan(PlanArgs),
    /// Pack release files that you have into an offline bundle
    Bundle(Box<BundleArgs>),
    /// Print what this program is
    Version,
    /// Print a completion script for a shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
}

impl Command {
    /// Whether it tells events as JSON lines, the last of which is its end.
    pub fn tells_events(&self) -> bool {
        match self {
            Command::Start(args) => args.output.output == Output::Json,
            Command::Reset(args) => args.output.output == Output::Json,
            Command::Upgrade(args) => args.output.output == Output::Json,
            Command::Rollback(args) => args.output.output == Output::Json,
            Command::Restart(args) | Command::Stop(args) | Command::StartNode(args) => {
                args.output.output == Output::Json
            }
            _ => false,
        }
    }
}

/// Where the configuration is.
#[derive(Args, Debug)]
pub struct ConfigArg {
    /// The configuration file; root's and not readable by others
    #[arg(long, value_name = "PATH", default_value = "/etc/aks-flex-node/config.json")]
    pub config: PathBuf,
}

/// In which form results and progress are printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArg {
    /// Text for people, or JSON for programs
    #[arg(long, value_enum, default_value_t = Output::Text, ignore_case = true)]
    pub output: Output,
}

/// In which form results and progress are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs: one JSON object per line where things happen over time, one document otherwise.
    Json,
}

/// What `start` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// Until the Node is Ready
    Ready,
    /// Until kubelet runs and has joined
    Joined,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Arguments of `start`.
#[derive(Args, Debug)]
pub struct StartArgs {
    #[command(flatten)]
    /// Where the configuration is.
    pub config: ConfigArg,
    /// What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]
    #[arg(long, value_enum)]
    pub wait: Option<Wait>,
    /// How long to wait for it, as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `reset`.
#[derive(Args, Debug)]
pub struct ResetArgs {
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Keep /var/lib/containerd with the images in it
    #[arg(long)]
    pub keep_images: bool,
    /// Remove the installed agent too
    #[arg(long)]
    pub remove_agent: bool,
    /// Delete the Node from the cluster too, with this kubeconfig; root's and not readable by others
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `upgrade`.
#[derive(Args, Debug)]
pub struct UpgradeArgs {
    #[command(flatten)]
    /// Where the configuration is.
    pub config: ConfigArg,
    /// Go to what this file says; the configuration stays as it is
    #[arg(long, value_name = "FILE", conflicts_with = "to_version")]
    pub to_config: Option<PathBuf>,
    /// Go to this Kubernetes version with everything else as it runs now
    #[arg(long, value_name = "VERSION")]
    pub to_version: Option<String>,
    /// Do not ask, neither before an older version nor before a goal that a person went back from
    #[arg(long, short = 'y')]
    pub yes: bool,
    /// Try a goal again that failed
    #[arg(long)]
    pub retry: bool,
    /// Go on although the version that runs is damaged: a failure then leaves the new version as it is
    #[arg(long)]
    pub without_rollback: bool,
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `rollback`.
#[derive(Args, Debug)]
pub struct RollbackArgs {
    /// The version to go to, as `slots list` names it [default: the one that ran before]
    #[arg(long, value_name = "SLOT")]
    pub to: Option<String>,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `restart`, `stop` and `start-node`.
#[derive(Args, Debug)]
pub struct LifecycleArgs {
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// What is done with the installed versions.
#[derive(Debug, Subcommand)]
pub enum SlotsCommand {
    /// Show them with their sizes
    List(SlotsArgs),
    /// Remove all but the active one, the one before it, what still runs, and one more
    Prune(SlotsArgs),
    /// Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running
    Repair(RepairArgs),
}

/// Arguments of `slots list` and `slots prune`.
#[derive(Args, Debug)]
pub struct SlotsArgs {
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `slots repair`.
#[derive(Args, Debug)]
pub struct RepairArgs {
    /// The version, as `slots list` names it
    #[arg(value_name = "SLOT")]
    pub slot: String,
    #[command(flatten)]
    /// The configuration that names the artifact source.
    pub config: ConfigArg,
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `daemon`.
#[derive(Args, Debug)]
pub struct DaemonArgs {
    #[command(flatten)]
    /// Where the configuration is.
    pub config: ConfigArg,
}

/// Operations that can be printed as a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Planned {
    /// What `start` would run
    Start,
    /// What `upgrade` would run
    Upgrade,
    /// What `rollback` would run
    Rollback,
    /// What `restart` would run
    Restart,
    /// What `stop` would run
    Stop,
    /// What `start-node` would run
    StartNode,
    /// What `reset` would run
    Reset,
}

/// Arguments of `plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// The operation
    #[arg(value_enum, default_value_t = Planned::Start)]
    pub operation: Planned,
    #[command(flatten)]
    /// Where the configuration is.
    pub config: ConfigArg,
    /// For `upgrade`: to what this file says
    #[arg(long, value_name = "FILE", conflicts_with = "to_version")]
    pub to_config: Option<PathBuf>,
    /// For `upgrade`: to this Kubernetes version with everything else as it runs now
    #[arg(long, value_name = "VERSION")]
    pub to_version: Option<String>,
    /// For `upgrade`: without the way back
    #[arg(long)]
    pub without_rollback: bool,
    /// For `rollback`: to this version, as `slots list` names it
    #[arg(long, value_name = "SLOT")]
    pub to: Option<String>,
    #[command(flatten)]
    /// The form of the output.
    pub output: OutputArg,
}

/// Arguments of `bundle`.
#[derive(Args, Debug)]
pub struct BundleArgs {
    /// The directory to make
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The kubelet program, or an archive that has it
    #[arg(long, value_name = "FILE")]
    pub kubelet: Option<PathBuf>,
    /// The kubectl program, likewise
    #[arg(long, value_name = "FILE")]
    pub kubectl: Option<PathBuf>,
    /// containerd: the release's .tar.gz, or a directory with its programs
    #[arg(long, value_name = "FILE")]
    pub containerd: Option<PathBuf>,
    /// The runc program
    #[arg(long, value_name = "FILE")]
    pub runc: Option<PathBuf>,
    /// The CNI plugins: the release's .tgz, or a directory with them
    #[arg(long, value_name = "FILE")]
    pub cni: Option<PathBuf>,
    /// crictl: the release's .tar.gz, or the program
    #[arg(long, value_name = "FILE")]
    pub crictl: Option<PathBuf>,
    /// The kube-proxy program; older agents want it in a bundle, this one does not
    #[arg(long, value_name = "FILE")]
    pub kube_proxy: Option<PathBuf>,
    /// An image archive as `ctr images export` or `docker save` write it; may be repeated
    #[arg(long = "image", value_name = "FILE")]
    pub images: Vec<PathBuf>,
    /// The architecture of the files [default: this machine's]
    #[arg(long, value_name = "ARCH", value_parser = ["amd64", "arm64"])]
    pub arch: Option<String>,
    /// The version of kubelet, kubectl and kube-proxy, where neither file name nor program tells it
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<String>,
    /// The version of containerd, likewise
    #[arg(long, value_name = "VERSION")]
    pub containerd_version: Option<String>,
    /// The version of runc, likewise
    #[arg(long, value_name = "VERSION")]
    pub runc_version: Option<String>,
    /// The version of the CNI plugins, likewise
    #[arg(long, value_name = "VERSION")]
    pub cni_version: Option<String>,
    /// The version of crictl, likewise
    #[arg(long, value_name = "VERSION")]
    pub crictl_version: Option<String>,
}

/// A time such as `90s`, `5m` or `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 90s or 5m");
    let time: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(time).map_err(|_| wrong())
}

/// The command line for man pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "5", "-5m", "soon"] {
            assert!(duration(wrong).unwrap_err().contains("90s or 5m"), "{wrong}");
        }
    }

    #[test]
    fn the_other_names_of_commands_work() {
        for (name, other) in [("start", "bootstrap"), ("reset", "unbootstrap"), ("daemon", "agent")] {
            let found = command().find_subcommand(other).map(|c| c.get_name().to_owned());
            assert_eq!(found.as_deref(), Some(name));
        }
    }
}
