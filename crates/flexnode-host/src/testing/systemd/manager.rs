//! The manager behind [`super::FakeSystemd`]: units, jobs and links.

use super::super::{FakeCgroups, FakeClock, FakeProcesses, MemFs};
use super::unit_file::{Settings, Source, UNIT_DIRS, matches};
use crate::{FileKind, Fs, HostError, UnitState};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ETC: &str = "/etc/systemd/system";

/// A unit that was asked for.
#[derive(Clone, Debug)]
struct Unit {
    source: Source,
    settings: Settings,
    active: String,
    sub: String,
    main_pid: u32,
    restarts: u32,
    result: String,
    exit_status: i32,
    since_us: u64,
}

#[derive(Debug)]
pub(super) struct Manager {
    fs: Arc<MemFs>,
    processes: Arc<FakeProcesses>,
    cgroups: Arc<FakeCgroups>,
    clock: Arc<FakeClock>,
    units: BTreeMap<String, Unit>,
    /// Links of `[Install]` changed since the last reload; systemd then asks for one at every unit.
    links_outdated: bool,
    pub(super) lenient: bool,
    pub(super) journals: BTreeMap<String, Vec<String>>,
}

fn failed(verb: &str, unit: &str, reason: impl Into<String>) -> HostError {
    HostError::Failed { what: format!("{verb} {unit}"), reason: reason.into() }
}

impl Manager {
    pub(super) fn new(
        fs: Arc<MemFs>,
        processes: Arc<FakeProcesses>,
        cgroups: Arc<FakeCgroups>,
        clock: Arc<FakeClock>,
    ) -> Self {
        let (units, journals) = (BTreeMap::new(), BTreeMap::new());
        Self { fs, processes, cgroups, clock, units, links_outdated: false, lenient: false, journals }
    }

    fn read(&self, name: &str) -> Source {
        Source::read(self.fs.as_ref(), name)
    }

    /// The unit, read from disk when it is not known; systemd looks again for one that it did not find.
    fn unit(&mut self, name: &str) -> &mut Unit {
        let missing = self.units.get(name).is_none_or(|u| u.source.fragment.is_none() && u.active == "inactive");
        if missing {
            let source = self.read(name);
            let settings = source.parse(name);
            let text = |s: &str| s.to_owned();
            let unit = Unit {
                source,
                settings,
                active: text("inactive"),
                sub: text("dead"),
                main_pid: 0,
                restarts: 0,
                result: text("success"),
                exit_status: 0,
                since_us: 0,
            };
            self.units.insert(name.to_owned(), unit);
        }
        self.units.entry(name.to_owned()).or_insert_with(|| unreachable!("inserted above"))
    }

    /// What systemd would say now.
    pub(super) fn state(&mut self, name: &str) -> UnitState {
        self.notice_end(name);
        let (disk, enabled) = (self.read(name), self.enabled(name));
        let unit = self.unit(name).clone();
        let load = match &unit.source {
            source if source.masked => "masked",
            source if source.fragment.is_some() => "loaded",
            _ => "not-found",
        };
        let settings = &unit.settings;
        UnitState {
            load: load.to_owned(),
            need_reload: self.links_outdated || unit.source != disk,
            fragment: unit.source.fragment.map(|(path, _)| path).unwrap_or_default(),
            drop_ins: unit.source.drop_ins.into_iter().map(|(path, _)| path).collect(),
            enabled,
            exec_start: settings.exec_start(),
            environment: settings.words("Service", "Environment"),
            control_group: if unit.main_pid == 0 { String::new() } else { format!("/{}", slice(name, settings)) },
            active: unit.active,
            sub: unit.sub,
            main_pid: unit.main_pid,
            restarts: unit.restarts,
            result: unit.result,
            exit_status: unit.exit_status,
            since_us: unit.since_us,
        }
    }

    /// Reacts to a main process that has ended, as systemd does on SIGCHLD.
    fn notice_end(&mut self, name: &str) {
        let pid = self.unit(name).main_pid;
        if pid == 0 || self.processes.runs(pid) {
            return;
        }
        let unit = self.unit(name);
        let again = unit.settings.last("Service", "Restart").is_some_and(|r| ["always", "on-failure"].contains(&r));
        let restarts = unit.restarts + 1;
        self.fail(name, "signal", 9);
        if again && self.activate(name).is_ok() {
            self.unit(name).restarts = restarts;
        }
    }

    pub(super) fn set_active(&mut self, name: &str, active: &str, sub: &str) {
        let now = self.clock.now_us();
        let unit = self.unit(name);
        active.clone_into(&mut unit.active);
        sub.clone_into(&mut unit.sub);
        unit.since_us = now;
    }

    /// The unit's processes are gone and it has failed.
    pub(super) fn fail(&mut self, name: &str, result: &str, exit_status: i32) {
        self.end_processes(name);
        self.set_active(name, "failed", "failed");
        let unit = self.unit(name);
        result.clone_into(&mut unit.result);
        unit.exit_status = exit_status;
    }

    fn end_processes(&mut self, name: &str) {
        let unit = self.unit(name);
        let pid = std::mem::take(&mut unit.main_pid);
        // KillMode=process leaves the others of the group alone (systemd.kill(5)).
        let alone = unit.settings.last("Service", "KillMode") == Some("process");
        let group = slice(name, &unit.settings);
        if pid != 0 {
            self.processes.kill(pid);
        }
        if !alone {
            for pid in self.processes.in_cgroup(&group) {
                self.processes.kill(pid);
            }
        }
    }

    pub(super) fn start(&mut self, name: &str) -> Result<(), HostError> {
        self.start_one(name, &mut BTreeSet::new())
    }

    fn start_one(&mut self, name: &str, seen: &mut BTreeSet<String>) -> Result<(), HostError> {
        let state = self.state(name);
        match state.load.as_str() {
            "not-found" if name.ends_with(".target") => {}
            "not-found" => return Err(HostError::Absent { what: format!("unit {name}") }),
            "masked" => return Err(failed("start", name, format!("unit {name} is masked"))),
            _ => {}
        }
        if state.is_active() || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let settings = self.unit(name).settings.clone();
        for needed in ["Requires", "BindsTo"].iter().flat_map(|key| settings.words("Unit", key)) {
            if let Err(e) = self.start_one(&needed, seen) {
                return Err(failed("start", name, format!("dependency {needed} failed: {e}")));
            }
        }
        for wanted in settings.words("Unit", "Wants") {
            // systemd.unit(5): a wanted unit that fails has no impact on this one.
            let _ = self.start_one(&wanted, seen);
        }
        self.activate(name)
    }

    /// Starts the unit itself.
    fn activate(&mut self, name: &str) -> Result<(), HostError> {
        let settings = self.unit(name).settings.clone();
        if !self.conditions_hold(&settings) {
            return Ok(());
        }
        self.unit(name).restarts = 0;
        if Path::new(name).extension().is_none_or(|kind| kind != "service") {
            self.set_active(name, "active", "active");
            return Ok(());
        }
        if !self.lenient {
            self.check_files(name, &settings)?;
        }
        let unit = self.unit(name);
        "success".clone_into(&mut unit.result);
        unit.exit_status = 0;
        let remains = settings.last("Service", "RemainAfterExit").is_some_and(|v| ["yes", "true", "1"].contains(&v));
        match settings.last("Service", "Type") {
            Some("oneshot") if remains => self.set_active(name, "active", "exited"),
            Some("oneshot") => self.set_active(name, "inactive", "dead"),
            _ => {
                let words = settings.exec_start();
                let argv: Vec<&str> = words.iter().map(String::as_str).collect();
                let group = slice(name, &settings);
                self.cgroups.add(&group);
                let process = self.processes.spawn(argv.first().copied().unwrap_or_default(), &argv, &group);
                self.set_active(name, "active", "running");
                self.unit(name).main_pid = process.pid;
            }
        }
        Ok(())
    }

    fn conditions_hold(&self, settings: &Settings) -> bool {
        settings.all("Unit", "ConditionPathExists").iter().all(|condition| {
            let (path, wanted) = condition.strip_prefix('!').map_or((condition.as_str(), true), |path| (path, false));
            self.fs.stat(Path::new(path)).ok().flatten().is_some() == wanted
        })
    }

    /// systemd.exec(5): without its EnvironmentFile a service fails with `resources`, without its program with 203.
    fn check_files(&mut self, name: &str, settings: &Settings) -> Result<(), HostError> {
        let fs = self.fs.clone();
        let there = |path: &str| fs.stat(Path::new(path)).ok().flatten().is_some_and(|s| s.kind == FileKind::File);
        let environment = settings.all("Service", "EnvironmentFile").iter().find(|f| !f.starts_with('-') && !there(f));
        if let Some(file) = environment {
            self.fail(name, "resources", 0);
            return Err(failed("start", name, format!("the job failed: EnvironmentFile {file} is not there")));
        }
        let argv = settings.exec_start();
        let program = argv.first().map_or("", String::as_str);
        if !there(program) {
            self.fail(name, "exit-code", 203);
            let hint = "FakeSystemd::lenient turns this check off";
            return Err(failed("start", name, format!("the job failed: 203/EXEC, {program:?} is not there ({hint})")));
        }
        Ok(())
    }

    /// Stops the unit and what cannot run without it.
    pub(super) fn stop(&mut self, name: &str) {
        for other in self.dependents(name, &["Requires", "BindsTo", "PartOf"]) {
            self.stop(&other);
        }
        self.end_processes(name);
        let unit = self.unit(name);
        if unit.active != "inactive" && unit.active != "failed" {
            self.set_active(name, "inactive", "dead");
        }
    }

    pub(super) fn restart(&mut self, name: &str) -> Result<(), HostError> {
        let along = self.dependents(name, &["Requires", "BindsTo", "PartOf"]);
        if self.state(name).load == "loaded" {
            self.stop(name);
        }
        self.start(name)?;
        along.iter().try_for_each(|other| self.start(other))
    }

    /// The active units that name this one under one of the keys.
    fn dependents(&self, name: &str, keys: &[&str]) -> Vec<String> {
        let names = |unit: &Unit| keys.iter().any(|key| unit.settings.words("Unit", key).iter().any(|n| n == name));
        let active = |unit: &Unit| unit.active == "active" || unit.active == "activating";
        self.units.iter().filter(|(_, unit)| active(unit) && names(unit)).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn reload(&mut self) {
        self.links_outdated = false;
        for (name, unit) in &mut self.units {
            unit.source = Source::read(self.fs.as_ref(), name);
            unit.settings = unit.source.parse(name);
        }
        self.units.retain(|_, unit| unit.source.fragment.is_some() || unit.active != "inactive");
    }

    pub(super) fn reset_failed(&mut self, name: &str) {
        let unit = self.unit(name);
        if unit.active == "failed" {
            "success".clone_into(&mut unit.result);
            unit.restarts = 0;
            self.set_active(name, "inactive", "dead");
        }
    }

    pub(super) fn list(&self, patterns: &[&str]) -> Vec<String> {
        let mut names: BTreeSet<String> = self.units.keys().cloned().collect();
        names
            .retain(|name| self.units.get(name).is_some_and(|u| u.source.fragment.is_some() || u.active != "inactive"));
        for entry in UNIT_DIRS.iter().flat_map(|dir| self.fs.read_dir(Path::new(dir)).unwrap_or_default()) {
            if entry.kind != FileKind::Dir {
                names.insert(entry.name.to_string_lossy().into_owned());
            }
        }
        names.retain(|name| patterns.iter().any(|pattern| matches(pattern, name)));
        names.into_iter().collect()
    }

    /// The links that `[Install]` asks for.
    fn install_links(&self, name: &str) -> Vec<PathBuf> {
        let settings = self.read(name).parse(name);
        let into = |key: &str, kind: &str| {
            let dir = |target: String| Path::new(ETC).join(format!("{target}.{kind}")).join(name);
            settings.words("Install", key).into_iter().map(dir).collect::<Vec<_>>()
        };
        let alias = settings.words("Install", "Alias").into_iter().map(|alias| Path::new(ETC).join(alias));
        [into("WantedBy", "wants"), into("RequiredBy", "requires")].concat().into_iter().chain(alias).collect()
    }

    fn enabled(&self, name: &str) -> String {
        let source = self.read(name);
        let links = self.install_links(name);
        match source {
            source if source.masked => "masked",
            source if source.fragment.is_none() => "",
            _ if links.iter().any(|link| self.fs.exists(link)) => "enabled",
            source if !source.parse(name).has_section("Install") => "static",
            _ => "disabled",
        }
        .to_owned()
    }

    pub(super) fn enable(&mut self, name: &str) -> Result<(), HostError> {
        let source = self.read(name);
        if source.masked {
            return Err(failed("enable", name, format!("unit {name} is masked")));
        }
        let Some((fragment, _)) = source.fragment else {
            return Err(HostError::Absent { what: format!("unit {name}") });
        };
        for link in self.install_links(name).into_iter().filter(|link| !self.fs.exists(link)) {
            crate::durable::ensure_dir(self.fs.as_ref(), link.parent().unwrap_or(Path::new("/")), 0o755)?;
            self.fs.symlink(&fragment, &link)?;
            crate::durable::sync_name(self.fs.as_ref(), &link)?;
            self.links_outdated = true;
        }
        Ok(())
    }

    pub(super) fn disable(&mut self, name: &str) -> Result<(), HostError> {
        let etc = Path::new(ETC);
        for entry in self.fs.read_dir(etc).unwrap_or_default() {
            let dir = etc.join(&entry.name);
            let link = dir.join(name);
            let is_dependency =
                entry.name.to_string_lossy().ends_with(".wants") || entry.name.to_string_lossy().ends_with(".requires");
            if is_dependency && self.fs.lstat(&link)?.is_some_and(|stat| stat.kind == FileKind::Link) {
                self.fs.unlink(&link)?;
                self.links_outdated = true;
                if self.fs.read_dir(&dir)?.is_empty() {
                    self.fs.rmdir(&dir)?;
                }
                crate::durable::sync_name(self.fs.as_ref(), &link)?;
            }
        }
        for alias in self.read(name).parse(name).words("Install", "Alias") {
            let link = etc.join(alias);
            if self.fs.lstat(&link)?.is_some_and(|stat| stat.kind == FileKind::Link) {
                self.fs.unlink(&link)?;
                crate::durable::sync_name(self.fs.as_ref(), &link)?;
                self.links_outdated = true;
            }
        }
        Ok(())
    }

    pub(super) fn reboot(&mut self) {
        for pid in self.units.values().map(|unit| unit.main_pid).filter(|pid| *pid != 0) {
            self.processes.kill(pid);
        }
        self.units.clear();
        self.links_outdated = false;
        let mut enabled = BTreeSet::new();
        for target in ["multi-user.target", "sysinit.target", "basic.target", "default.target"] {
            for kind in ["wants", "requires"] {
                let dir = Path::new(ETC).join(format!("{target}.{kind}"));
                let entries = self.fs.read_dir(&dir).unwrap_or_default();
                enabled.extend(entries.into_iter().map(|entry| entry.name.to_string_lossy().into_owned()));
            }
        }
        for name in enabled {
            // Whatever fails at boot is seen in the unit's state.
            let _ = self.start(&name);
        }
    }
}

/// The unit's control group.
fn slice(name: &str, settings: &Settings) -> String {
    format!("{}/{name}", settings.last("Service", "Slice").unwrap_or("system.slice"))
}
