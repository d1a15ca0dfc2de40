//! The connection to PID 1.

use super::private;
use futures_util::stream::{SelectAll, select_all};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::timeout;
use zbus::conn::Builder;
use zbus::fdo::PropertiesProxy;
use zbus::names::InterfaceName;
use zbus::{Connection, MatchRule, MessageStream, OwnedObjectPath, OwnedVariant};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// What a call waits for at most, whatever its caller says.
const ANSWER: Duration = Duration::from_secs(90);

const SERVICE: &str = "org.freedesktop.systemd1";
const UNIT_INTERFACE: &str = "org.freedesktop.systemd1.Unit";
const SERVICE_INTERFACE: &str = "org.freedesktop.systemd1.Service";

/// All properties of an interface.
pub(super) type Properties = HashMap<String, OwnedVariant>;

/// A unit in a list: name, description, load, active and sub state, following unit, path, job number, type and path.
type ListedUnit = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// What changed on disk: type of the change, file, link target.
pub(super) type FileChange = (String, String, String);

/// The parts of org.freedesktop.systemd1.Manager that are used.
#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
pub(super) trait Manager {
    fn subscribe(&self) -> zbus::Result<()>;
    fn load_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn restart_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    fn reload(&self) -> zbus::Result<()>;
    fn get_unit_file_state(&self, file: &str) -> zbus::Result<String>;
    fn enable_unit_files(&self, files: &[&str], runtime: bool, force: bool) -> zbus::Result<(bool, Vec<FileChange>)>;
    fn disable_unit_files(&self, files: &[&str], runtime: bool) -> zbus::Result<Vec<FileChange>>;
    fn list_units_by_patterns(&self, states: &[&str], patterns: &[&str]) -> zbus::Result<Vec<ListedUnit>>;
    fn list_unit_files_by_patterns(&self, states: &[&str], patterns: &[&str]) -> zbus::Result<Vec<(String, String)>>;
}

/// A job that has ended.
pub(super) struct JobEnd {
    pub(super) job: OwnedObjectPath,
    pub(super) result: String,
}

impl JobEnd {
    /// Reads the signal JobRemoved: number, path, unit, result.
    pub(super) fn read(signal: &zbus::Message) -> zbus::Result<Self> {
        let body = signal.body();
        let (_, job, _, result): (u32, OwnedObjectPath, String, String) = body.deserialize()?;
        Ok(Self { job, result })
    }
}

/// Why a call did not give an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// There is no such unit or unit file.
    #[error("{0}")]
    NoSuchUnit(String),
    /// The connection cannot be made or is broken.
    #[error("no connection to systemd: {0}")]
    Broken(String),
    /// Systemd refused.
    #[error("{0}")]
    Refused(String),
}

impl From<zbus::Error> for Trouble {
    fn from(error: zbus::Error) -> Self {
        let (name, text) = match &error {
            zbus::Error::MethodError(name, text, _) => (name.as_str(), text.clone()),
            zbus::Error::InputOutput(_) | zbus::Error::Handshake(_) => return Trouble::Broken(error.to_string()),
            zbus::Error::FDO(fdo) => match &**fdo {
                zbus::fdo::Error::NoReply(text) | zbus::fdo::Error::Disconnected(text) => {
                    return Trouble::Broken(text.clone());
                }
                zbus::fdo::Error::FileNotFound(text) => return Trouble::NoSuchUnit(text.clone()),
                _ => ("", None),
            },
            _ => ("", None),
        };
        let text = text.unwrap_or_else(|| error.to_string());
        match name {
            "org.freedesktop.systemd1.NoSuchUnit" | "System.Error.ENOENT" => Trouble::NoSuchUnit(text),
            _ => Trouble::Refused(text),
        }
    }
}

/// A connection with its manager.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    connection: Connection,
    pub(super) manager: ManagerProxy<'static>,
}

impl Bus {
    /// Over the system bus, else over PID 1's own socket.
    pub(super) async fn connect() -> Result<Self, Trouble> {
        let over_bus = match timeout(CONNECT, Builder::system().method_timeout(ANSWER).build()).await {
            Ok(Ok(connection)) => match timeout(CONNECT, Self::on(connection)).await {
                Ok(Ok(bus)) => return Ok(bus),
                Ok(Err(e)) => e.to_string(),
                Err(_) => "the system bus does not answer".to_owned(),
            },
            Ok(Err(e)) => e.to_string(),
            Err(_) => "the system bus does not answer".to_owned(),
        };
        let direct = async { Self::on(private::connect(ANSWER).await?).await };
        match timeout(CONNECT, direct).await {
            Ok(Ok(bus)) => Ok(bus),
            Ok(Err(e)) => Err(Trouble::Broken(format!("system bus: {over_bus}; {}: {e}", private::PATH))),
            Err(_) => Err(Trouble::Broken(format!("system bus: {over_bus}; {} does not answer", private::PATH))),
        }
    }

    async fn on(connection: Connection) -> zbus::Result<Self> {
        let manager =
            ManagerProxy::builder(&connection).cache_properties(zbus::proxy::CacheProperties::No).build().await?;
        // Without it systemd sends no signals over the bus.
        manager.subscribe().await?;
        Ok(Self { connection, manager })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// The ends of jobs, from now on. Not through the proxy: that asks the bus who owns the name, and there may be no bus.
    pub(super) async fn job_ends(self) -> zbus::Result<MessageStream> {
        let mut rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .path("/org/freedesktop/systemd1")
            .interface("org.freedesktop.systemd1.Manager")
            .member("JobRemoved");
        if self.connection.is_bus() {
            rule = rule.sender(SERVICE);
        }
        MessageStream::for_match_rule(rule.build()?, &self.connection, None).await
    }

    /// Changes of properties of the units, and of unit files, from now on. A rule for each unit: the changes of all the
    /// others on the host wake nobody here.
    pub(super) async fn changes(self, units: &[&str]) -> zbus::Result<SelectAll<MessageStream>> {
        let mut streams = Vec::new();
        for unit in units {
            let path = format!("/org/freedesktop/systemd1/unit/{}", escaped(unit));
            let rule = self.signals("org.freedesktop.DBus.Properties", "PropertiesChanged").path(path);
            streams.push(MessageStream::for_match_rule(rule.build()?, &self.connection, None).await?);
        }
        for member in ["UnitFilesChanged", "Reloading"] {
            let rule = self.signals("org.freedesktop.systemd1.Manager", member).path("/org/freedesktop/systemd1");
            streams.push(MessageStream::for_match_rule(rule.build()?, &self.connection, None).await?);
        }
        Ok(select_all(streams))
    }

    fn signals(&self, interface: &'static str, member: &'static str) -> zbus::match_rule::Builder<'static> {
        let rule = MatchRule::builder().msg_type(zbus::message::Type::Signal).interface(interface).member(member);
        if self.connection.is_bus() { rule.sender(SERVICE) } else { rule }
    }

    async fn properties(&self, unit: &str, interface: &'static str) -> zbus::Result<Properties> {
        let path = self.manager.load_unit(unit).await?;
        let proxy = PropertiesProxy::builder(&self.connection).destination(SERVICE).path(path).build().await?;
        Ok(proxy.get_all(InterfaceName::try_from(interface)?).await?)
    }

    pub(super) async fn unit_properties(self, unit: &str) -> zbus::Result<Properties> {
        self.properties(unit, UNIT_INTERFACE).await
    }

    pub(super) async fn service_properties(self, unit: &str) -> zbus::Result<Properties> {
        self.properties(unit, SERVICE_INTERFACE).await
    }
}

/// A unit's name as a part of an object path: what is no letter or digit becomes `_` and two hex digits, a digit at the
/// front too (sd_bus_path_encode(3)).
fn escaped(unit: &str) -> String {
    let mut path = String::new();
    for (at, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "_{byte:02x}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_in_object_paths() {
        assert_eq!(super::escaped("unbounded-kubelet.service"), "unbounded_2dkubelet_2eservice");
        assert_eq!(super::escaped("9p@x_y.service"), "_39p_40x_5fy_2eservice");
    }
}
