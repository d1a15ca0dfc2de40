//! A machine: a guest of QEMU with a kernel of its own, for what a container cannot show: control groups of version 2,
//! settings of the kernel that all containers share, swap, a boot, a power cut.
//!
//! Where this machine's processor runs no guests it is emulated: it boots in some 30 s, and programs run at perhaps a tenth
//! of their speed.

pub mod cut;
pub mod disk;
mod golden;
pub mod log;
mod port;
pub mod recording;
pub mod results;

use crate::host::{Share, check_name, network_plugin_config, take_number};
use crate::lab::{BRIDGE, Lab};
use crate::process::Process;
use crate::record::Record;
use crate::run::{Output, must, tail};
use crate::{cache, poll, prerequisites};
use anyhow::{Context as _, Result, bail};
use golden::Golden;
use port::Port;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const QUICK: Duration = Duration::from_secs(60);
/// How long the copy of a disk may take on a busy machine.
const COPY: Duration = Duration::from_secs(300);
/// How long a boot may take on a busy machine.
const BOOT: Duration = Duration::from_secs(900);
/// How long a command may take when nothing else is said.
const LIMIT: Duration = Duration::from_secs(900);
/// Where a machine sees its shares.
const SHARES: &str = "/srv";

/// What may differ between machines.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `/usr` is read-only from before systemd starts.
    pub read_only_usr: bool,
    /// Files and directories of the outer machine to show, each below `/srv`: a second disk, made once, read-only.
    pub shares: Vec<Share>,
    /// Every write and flush of the root disk goes into a log, from the machine's first boot on: see [`cut`].
    pub record: bool,
    /// Made of this disk instead of the golden one: a state that a power cut left.
    pub disk: Option<PathBuf>,
}

/// A running machine on the lab's bridge. Dropping it takes its power and removes all of it.
///
/// It cannot be kept: a test or a command of the lab that made it is the only one that can talk to it.
#[derive(Debug)]
pub struct Machine {
    lab: Lab,
    record: Record,
    name: String,
    number: u8,
    options: Options,
    golden: Golden,
    child: Option<Child>,
    qemu: Process,
    port: Mutex<Port>,
}

impl Machine {
    /// Makes a machine and boots it. The name is its host name too: small letters, digits, dashes.
    pub fn new(lab: &Lab, name: &str, options: Options) -> Result<Self> {
        check_name(name)?;
        prerequisites::ensure_machine()?;
        let golden = Golden::get()?;
        let record = Record::create(&lab.record().part(&format!("machine-{name}")))?;
        let number = take_number(lab, &record)?;
        let port = Mutex::new(Port::create(&record.folder.join("port"))?);
        let (lab, name, qemu) = (lab.clone(), name.to_owned(), Process { pid: 0, start: 0 });
        let mut machine = Self { lab, record, name, number, options, golden, child: None, qemu, port };
        machine.attach().context("cannot make the machine's network")?;
        machine.make_disks().context("cannot make the machine's disks")?;
        machine.power_on()?;
        Ok(machine)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the lab's bridge.
    pub fn address(&self) -> String {
        self.lab.address(self.number)
    }

    /// The network of its pods; the lab's gateway routes it to this machine.
    pub fn pod_network(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// A configuration for containerd's network, as the add-on of a cluster would put it in place.
    pub fn network_plugin_config(&self) -> String {
        network_plugin_config(&self.pod_network())
    }

    /// The root disk as it is now. While the machine is on it changes.
    pub fn disk(&self) -> PathBuf {
        self.record.folder.join("disk.img")
    }

    /// The root disk as it was when the log of its writes began; of a machine that records.
    pub fn disk_before(&self) -> PathBuf {
        self.record.folder.join("before.img")
    }

    /// The log of its writes; of a machine that records.
    pub fn log(&self) -> PathBuf {
        self.record.folder.join("log.img")
    }

    /// Where the log ends now, in bytes: what the guest did before it was asked lies before it.
    pub fn mark(&self) -> Result<u64> {
        let path = self.log();
        Ok(fs::metadata(&path).with_context(|| format!("there is no log {}", path.display()))?.len())
    }

    /// What its console said.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.record.folder.join("console.log")).unwrap_or_default()).into_owned()
    }

    /// Runs a command as root, however it ends.
    pub fn exec(&self, words: &[&str]) -> Result<Output> {
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        self.sh(&quoted.join(" "))
    }

    /// Runs a script of bash.
    pub fn sh(&self, script: &str) -> Result<Output> {
        self.ask(script, &[], LIMIT)
    }

    /// Writes a file with this mode, and the directories above it; replaces what is there by a rename. Some 200 kB take a
    /// second: what is larger belongs into [`Options::shares`].
    pub fn put(&self, path: &str, bytes: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let path = quote(path);
        let script = format!(
            "umask 022 && mkdir -p \"$(dirname {path})\" && cat >{path}.lab-new && chmod {mode:o} {path}.lab-new && \
             mv -fT {path}.lab-new {path}"
        );
        let output = self.ask(&script, bytes.as_ref(), LIMIT)?.success();
        output.with_context(|| format!("cannot write {path} in machine {}", self.name))?;
        Ok(())
    }

    /// The text of a file.
    pub fn read(&self, path: &str) -> Result<String> {
        let output = self.exec(&["cat", "--", path])?.success();
        Ok(output.with_context(|| format!("cannot read {path} in machine {}", self.name))?.stdout)
    }

    /// The identity of its current boot, as kubelet reports it too.
    pub fn boot_id(&self) -> Result<String> {
        Ok(self.read("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    /// Lets systemd shut down and boot again; returns when all units are started.
    pub fn reboot(&self) -> Result<()> {
        let before = self.boot_id()?;
        self.sh("systemctl --no-block reboot")?.success()?;
        let short = Duration::from_secs(20);
        poll(BOOT, Duration::from_millis(500), "the machine to boot again", || {
            // A request that the old boot took with it is never answered.
            let now = self.ask("cat /proc/sys/kernel/random/boot_id", &[], short)?.success()?;
            Ok((now.stdout.trim() != before).then_some(()))
        })
        .with_context(|| self.failed("no second boot"))?;
        self.wait_started()
    }

    /// Takes its power: memory is gone, what its disk had acknowledged stays.
    pub fn power_cut(&mut self) -> Result<()> {
        self.record.stop()?;
        self.reap();
        Ok(())
    }

    /// Boots it from its disk; returns when all units are started.
    pub fn power_on(&mut self) -> Result<()> {
        if self.qemu.alive() {
            bail!("machine {} is on already", self.name);
        }
        if self.options.record && self.log().exists() {
            bail!("the log of {} is of one boot: its machine cannot be switched on again", self.name);
        }
        *self.port() = Port::create(&self.port_name())?;
        if self.options.record {
            File::create_new(self.log())?;
        }
        let log = File::options().create(true).append(true).open(self.record.folder.join("qemu.log"))?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().context("cannot run QEMU")?;
        let qemu = Process::find(child.id().cast_signed());
        self.child = Some(child);
        self.qemu = qemu.with_context(|| self.failed("QEMU ended at once"))?;
        self.record.add_process("qemu", &self.qemu)?;
        self.wait_started()
    }

    fn wait_started(&self) -> Result<()> {
        // Told by the guest itself when it is over; degraded is for the test to find out.
        let state = self.ask("systemctl is-system-running --wait", &[], BOOT);
        let state = state.with_context(|| self.failed("the machine does not boot"))?.stdout;
        match state.trim() {
            "running" | "degraded" => Ok(()),
            other => bail!("{}", self.failed(&format!("the machine is {other} after its boot"))),
        }
    }

    fn ask(&self, script: &str, input: &[u8], limit: Duration) -> Result<Output> {
        self.port().ask(script, input, &self.qemu, limit).with_context(|| format!("in machine {}", self.name))
    }

    /// A panic in another thread leaves the port usable: what it waited for is skipped by its number.
    fn port(&self) -> MutexGuard<'_, Port> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn port_name(&self) -> PathBuf {
        self.record.folder.join("port")
    }

    /// The root disk as a copy of the golden one, and the disk of the shares.
    fn make_disks(&self) -> Result<()> {
        let folder = &self.record.folder;
        let mut copy = Command::new("cp");
        must(
            copy.args(["--sparse=always", "--reflink=auto", "--"])
                .arg(self.options.disk.clone().unwrap_or_else(|| self.golden.disk()))
                .arg(self.disk()),
            COPY,
        )?;
        fs::set_permissions(self.disk(), fs::Permissions::from_mode(0o600))?;
        if self.options.record {
            let mut copy = Command::new("cp");
            must(
                copy.args(["--sparse=always", "--reflink=auto", "--"]).arg(self.disk()).arg(self.disk_before()),
                COPY,
            )?;
        }
        let staged = folder.join("shares");
        fs::create_dir(&staged)?;
        for Share { from, to } in &self.options.shares {
            let inside = to.strip_prefix(SHARES).ok().filter(|path| path.iter().count() > 0);
            let inside = inside.with_context(|| format!("{} is not below {SHARES}", to.display()))?;
            let place = staged.join(inside);
            fs::create_dir_all(place.parent().unwrap_or(&staged))?;
            must(Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(from).arg(&place), QUICK)?;
        }
        let told = must(Command::new("du").args(["-sk", "--apparent-size", "--"]).arg(&staged), QUICK)?;
        let used: u64 =
            told.split_whitespace().next().and_then(|size| size.parse().ok()).context("du tells no size")?;
        // A tenth and some more for what the file system itself needs; the file is sparse.
        let size = format!("{}K", used + used / 10 + 32 * 1024);
        let mut command = Command::new("mkfs.ext4");
        command.args(["-q", "-F", "-L", "shares", "-O", "^has_journal", "-m", "0", "-d"]);
        must(command.arg(&staged).arg(folder.join("shares.img")).arg(size), QUICK)?;
        cache::remove_tree(&staged)
    }

    fn tap(&self) -> String {
        format!("machine{}", self.number)
    }

    fn attach(&self) -> Result<()> {
        let (lab, tap, pods, own) = (self.lab.namespace(), self.tap(), self.pod_network(), self.address());
        for words in [
            &["tuntap", "add", "dev", &tap, "mode", "tap"] as &[&str],
            &["link", "set", &tap, "master", BRIDGE, "up"],
            &["route", "replace", &pods, "via", &own],
        ] {
            must(Command::new("ip").args(["-n", &lab]).args(words), QUICK)?;
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let folder = self.record.folder.display();
        // Each letter on the console and each driver of hardware that is not there costs time.
        let mut kernel = format!(
            "console=ttyS0 TERM=dumb loglevel=4 systemd.show_status=no module_blacklist=kvm,kvm_amd,kvm_intel,powernow_k8 \
             net.ifnames=0 lab.name={} lab.address={} lab.gateway={}",
            self.name,
            self.address(),
            self.lab.gateway()
        );
        if self.options.read_only_usr {
            kernel.push_str(" lab.usr=ro");
        }
        let mut command = self.lab.command(Path::new("nice"));
        command.args(["-n", "10", "qemu-system-x86_64", "-name", &self.name]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35,sata=off,smbus=off"]);
        let accelerator =
            if has_kvm() { ["-accel", "kvm", "-cpu", "host"] } else { ["-accel", "tcg,thread=multi", "-cpu", "max"] };
        command.args(accelerator).args(["-smp", "2", "-m", "3072", "-rtc", "base=utc"]);
        command.arg("-kernel").arg(self.golden.kernel()).arg("-initrd").arg(self.golden.initrd());
        command.arg("-append").arg(kernel);
        // The guest sees a cache that can be lost, so that it sends flushes. They need not reach this machine's disk: a
        // power cut here is the end of a process.
        let disk = "driver=raw,cache.no-flush=on,file.driver=file,file.locking=off";
        command.arg("-blockdev").arg(format!("{disk},node-name=root,file.filename={folder}/disk.img"));
        let mut root = "root";
        if self.options.record {
            root = "recorded";
            command.arg("-blockdev").arg(format!(
                "driver=blklogwrites,node-name={root},file=root,log.driver=file,log.filename={folder}/log.img,\
                 log.cache.no-flush=on"
            ));
        }
        command.arg("-device").arg(format!("virtio-blk-pci,drive={root},write-cache=on"));
        command.arg("-blockdev").arg(format!("{disk},node-name=shares,read-only=on,file.filename={folder}/shares.img"));
        command.args(["-device", "virtio-blk-pci,drive=shares"]);
        command.arg("-netdev").arg(format!("tap,id=net,ifname={},script=no,downscript=no", self.tap()));
        command.arg("-device").arg(format!(
            "virtio-net-pci,netdev=net,romfile=,mac=52:54:00:00:{:02x}:{:02x}",
            self.lab.slot(),
            self.number
        ));
        command.args(["-device", "virtio-rng-pci"]);
        command.arg("-chardev").arg(format!("file,id=console,path={folder}/console.log,append=on"));
        command.args(["-serial", "chardev:console"]);
        command.arg("-chardev").arg(format!("pipe,id=port,path={}", self.port_name().display()));
        command.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port,name=lab"]);
        command
    }

    fn failed(&self, what: &str) -> String {
        let log = fs::read_to_string(self.record.folder.join("qemu.log")).unwrap_or_default();
        format!("{what}; QEMU says: {}; its console says: {}", tail(&log, 500), tail(&self.console(), 1500))
    }

    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It was ended before this; an error means that its code was taken already.
            let _ = child.wait();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = self.record.remove() {
            eprintln!("lab: {error:#}");
            return;
        }
        self.reap();
        // The lab goes on; with the lab it would go too.
        let removed = must(Command::new("ip").args(["-n", &self.lab.namespace(), "link", "del", &self.tap()]), QUICK);
        if let Err(error) = removed {
            eprintln!("lab: {error:#}");
        }
    }
}

/// Whether guests run on this machine's own processor. The device alone does not tell: a machine that is a guest itself may
/// have it, emulate what a guest does, and give up at an instruction of the guest's kernel.
fn has_kvm() -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    virtualizes(&processor) && File::options().read(true).write(true).open("/dev/kvm").is_ok()
}

/// Whether /proc/cpuinfo names the extensions of Intel or AMD (proc_cpuinfo(5)).
fn virtualizes(processor: &str) -> bool {
    let flags = processor.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| ["vmx", "svm"].contains(&flag))
}

/// A word as the shell reads it back.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::{quote, virtualizes};

    #[test]
    fn the_processor_tells_whether_it_runs_guests() {
        assert!(virtualizes("model\t: 1\nflags\t\t: fpu vmx sse\n") && virtualizes("flags\t: svm\n"));
        assert!(!virtualizes("model name\t: vmx\nflags\t\t: fpu svm_lock hypervisor\n") && !virtualizes(""));
    }

    #[test]
    fn words_come_back_from_the_shell() {
        for word in ["plain", "", "two words", "it's", "$HOME `x` \\ \"q\"\n*"] {
            let mut command = std::process::Command::new("sh");
            let output = command.args(["-c", &format!("printf %s {}", quote(word))]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
