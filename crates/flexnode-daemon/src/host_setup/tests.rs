//! The effects, on a host of fakes.

use super::*;
use crate::record::{HostRecorder, RecordStore};
use flexnode_host::Fs as _;
use flexnode_host::testing::{FakeHost, KernelState};
use flexnode_model::record::HostRecord;

fn recorder(fake: &FakeHost) -> HostRecorder {
    HostRecorder::new(&fake.host(), Path::new("/etc/aks-flex-node/config.json"), "n1")
}

fn recorded(fake: &FakeHost) -> HostRecord {
    RecordStore::new(fake.fs.clone()).load().unwrap().unwrap()
}

fn changed(outcome: Result<Outcome, StepError>) -> String {
    match outcome.unwrap() {
        Outcome::Changed(text) => text,
        Outcome::Unchanged => panic!("nothing was changed"),
    }
}

async fn modules(fake: &FakeHost) -> Result<Outcome, StepError> {
    set_up_modules(&fake.host(), &recorder(fake), &StepContext::silent()).await
}

fn sysctls(fake: &FakeHost) -> Result<Outcome, StepError> {
    set_up_sysctls(&fake.host(), &recorder(fake), &StepContext::silent())
}

async fn swap(fake: &FakeHost) -> Result<Outcome, StepError> {
    set_up_swap(&fake.host(), &recorder(fake), false, &StepContext::silent()).await
}

#[tokio::test]
async fn modules_are_loaded_and_persisted_once() {
    let fake = FakeHost::new();
    let text = changed(modules(&fake).await);
    assert_eq!(text, "loaded overlay; loaded br_netfilter; wrote /etc/modules-load.d/aks-flex-node.conf");
    assert_eq!(fake.kernel.log(), ["modprobe overlay", "modprobe br_netfilter"]);
    assert!(fake.fs.text(self::modules::MODULES_FILE).ends_with("\noverlay\nbr_netfilter\n"));
    assert_eq!(recorded(&fake).modules, ["br_netfilter", "overlay"].map(String::from).into());
    let before = fake.fs.tree_with_stamps();
    assert_eq!(modules(&fake).await.unwrap(), Outcome::Unchanged);
    assert_eq!(fake.fs.tree_with_stamps(), before, "the second time no file is touched");
}

#[tokio::test]
async fn a_kernel_without_overlay_is_refused_and_one_without_bridges_is_not() {
    let fake = FakeHost::new();
    fake.kernel.change(|kernel| kernel.loadable = ["br_netfilter".to_string()].into());
    let error = modules(&fake).await.unwrap_err();
    assert!(error.message.contains("overlay") && error.hint.unwrap().contains("6.12.0-fake"), "{}", error.message);
    fake.kernel.change(|kernel| kernel.loadable = ["overlay".to_string()].into());
    assert!(changed(modules(&fake).await).starts_with("loaded overlay; wrote"));
    assert!(!changed(sysctls(&fake)).contains("net.bridge"));
    assert!(!fake.fs.text(self::sysctls::SYSCTL_FILE).contains("net.bridge"));
}

#[test]
fn sysctls_are_set_recorded_and_persisted_once() {
    let fake = FakeHost::new();
    let text = changed(sysctls(&fake));
    assert!(text.contains("net.ipv4.ip_forward: 0 -> 1") && text.contains("kernel.panic: 0 -> 10"), "{text}");
    assert!(!text.contains("root_maxkeys"), "what is right already is not set: {text}");
    let record = recorded(&fake);
    assert_eq!(record.sysctls["kernel.panic"], "0");
    assert_eq!(record.file(self::sysctls::SYSCTL_FILE), Some(None));
    let (before, log) = (fake.fs.tree_with_stamps(), fake.kernel.log());
    assert_eq!(sysctls(&fake).unwrap(), Outcome::Unchanged);
    assert_eq!((fake.fs.tree_with_stamps(), fake.kernel.log()), (before, log));
    // Somebody sets one back: it is set again, and the older value stays recorded.
    fake.kernel.change(|kernel| drop(kernel.sysctls.insert("kernel.panic".into(), "5".into())));
    assert_eq!(changed(sysctls(&fake)), "kernel.panic: 5 -> 10");
    assert_eq!(recorded(&fake).sysctls["kernel.panic"], "0");
}

#[test]
fn a_key_that_does_not_take_its_value_is_an_error() {
    for arrange in [
        |kernel: &mut KernelState| kernel.stuck_sysctls.extend(["kernel.panic".to_string()]),
        |kernel: &mut KernelState| kernel.read_only_sysctls.extend(["kernel.panic".to_string()]),
    ] {
        let fake = FakeHost::new();
        fake.kernel.change(arrange);
        let error = sysctls(&fake).unwrap_err();
        assert!(error.message.contains("kernel.panic"), "{}", error.message);
    }
}

fn area(path: &str) -> SwapArea {
    SwapArea { path: path.into(), kind: "file".into(), bytes: 1 << 30, priority: -2 }
}

/// C005: a kernel without swap has no /proc/swaps.
#[tokio::test]
async fn a_kernel_without_swap_needs_nothing() {
    let fake = FakeHost::new();
    assert_eq!(swap(&fake).await.unwrap(), Outcome::Unchanged);
    assert!(!fake.fs.exists("/var/lib/aks-flex-node"), "nothing is recorded where nothing is changed");
}

/// C007: fstab would bring swap back at the next boot.
#[tokio::test]
async fn swap_of_fstab_is_off_and_stays_off() {
    let fake = FakeHost::new();
    fake.fs.put("/etc/fstab", "UUID=1 / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n", 0o640);
    fake.kernel.change(|kernel| kernel.swaps = vec![area("/swap.img")]);
    assert_eq!(changed(swap(&fake).await), "commented the swap lines of /etc/fstab; swap off on /swap.img");
    assert_eq!(fake.fs.text("/etc/fstab"), "UUID=1 / ext4 defaults 0 1\n#aks-flex-node# /swap.img none swap sw 0 0\n");
    assert_eq!(fake.fs.lstat(Path::new("/etc/fstab")).unwrap().unwrap().mode, 0o640);
    assert_eq!(fake.kernel.log(), ["swapoff /swap.img"]);
    let record = recorded(&fake);
    assert!(record.fstab && record.swaps[0].path == "/swap.img" && record.swaps[0].priority == -2);
    let before = fake.fs.tree_with_stamps();
    assert_eq!(swap(&fake).await.unwrap(), Outcome::Unchanged);
    assert_eq!(fake.fs.tree_with_stamps(), before);
}

/// C008: zram-generator makes swap outside of fstab, the initramfs too.
#[tokio::test]
async fn swap_of_zram_is_masked_and_that_of_the_initramfs_is_named() {
    let fake = FakeHost::new();
    let unit = "# Automatically generated by zram-generator\n[Swap]\nWhat=/dev/zram0\n";
    fake.fs.put("/run/systemd/generator/dev-zram0.swap", unit, 0o644);
    fake.kernel.change(|kernel| kernel.swaps = vec![area("/dev/zram0"), area("/dev/sda5")]);
    let text = changed(swap(&fake).await);
    assert!(text.contains("masked dev-zram0.swap; swap off on /dev/zram0; swap off on /dev/sda5"), "{text}");
    assert!(text.contains("/dev/sda5 was turned on by a script or the initramfs"), "{text}");
    let mask = Path::new("/etc/systemd/system/dev-zram0.swap");
    assert_eq!(fake.fs.read_link(mask).unwrap(), Path::new("/dev/null"));
    assert_eq!(recorded(&fake).masked, ["dev-zram0.swap".to_string()].into());
    assert!(fake.systemd.calls().contains(&"reload".to_string()));
    assert_eq!(swap(&fake).await.unwrap(), Outcome::Unchanged);
}

#[tokio::test]
async fn nothing_is_changed_when_it_cannot_be_recorded() {
    let fake = FakeHost::new();
    fake.fs.put("/etc/fstab", "/swap.img none swap sw 0 0\n", 0o644);
    fake.kernel.change(|kernel| kernel.swaps = vec![area("/swap.img")]);
    fake.fs.set_read_only("/var", true);
    for outcome in [modules(&fake).await, sysctls(&fake), swap(&fake).await] {
        assert!(outcome.unwrap_err().message.contains("recorded"));
    }
    assert_eq!(fake.kernel.log(), Vec::<String>::new());
    assert_eq!(fake.fs.text("/etc/fstab"), "/swap.img none swap sw 0 0\n");
}

#[tokio::test]
async fn a_crash_at_any_change_is_mended_by_the_next_run() {
    let arrange = || {
        let fake = FakeHost::new();
        fake.fs.put("/etc/fstab", "/swap.img none swap sw 0 0\n", 0o644);
        fake.kernel.change(|kernel| kernel.swaps = vec![area("/swap.img")]);
        fake
    };
    for after in 0.. {
        let fake = arrange();
        fake.fs.crash_after(after);
        let done = modules(&fake).await.is_ok() && sysctls(&fake).is_ok() && swap(&fake).await.is_ok();
        fake.fs.revive();
        modules(&fake).await.unwrap();
        sysctls(&fake).unwrap();
        swap(&fake).await.unwrap();
        assert_eq!(fake.fs.text("/etc/fstab"), "#aks-flex-node# /swap.img none swap sw 0 0\n");
        assert_eq!(fake.kernel.state().sysctls["kernel.panic"], "10");
        assert!(fake.kernel.state().swaps.is_empty());
        let record = recorded(&fake);
        assert_eq!(record.sysctls["kernel.panic"], "0", "after {after} changes");
        assert!(record.fstab && record.swaps.len() == 1);
        if done {
            assert!(after > 10, "only {after} points were tried");
            return;
        }
    }
}
