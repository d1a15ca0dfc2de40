//! One state: what is there, what the agent makes of it, and whether that is right.

use crate::check;
use crate::real::foreign::Foreign;
use crate::real::sight::Recovered;
use crate::real::tree::Reader;
use crate::scenario::Action;
use crate::world::World;
use flexnode_daemon::testing::PROGRAM;
use flexnode_host::cri::Image;
use flexnode_host::testing::{MemFs, power::Seed};
use flexnode_lab::machine::cut::Disk;
use flexnode_lab::machine::recording::{NAME, Recording};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use system_tests::checker;

/// How a state ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Old,
    New,
    /// The reset is finished.
    Gone,
}

/// What must not be.
#[derive(Clone, Debug)]
pub enum Wrong {
    Neither(String),
    Foreign(String),
}

/// A moment of an operation, and what of the unflushed is there.
#[derive(Clone, Debug)]
pub struct Case {
    pub number: u64,
    pub operation: String,
    pub action: Action,
    pub moment: usize,
    /// The operation had said that it is done.
    pub done: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.done { ", done" } else { "" };
        write!(f, "case {}: {} at moment {}{when}", self.number, self.operation, self.moment)
    }
}

impl Case {
    /// The case of this number: every operation in turn.
    pub fn new(recording: &Recording, disk: &Disk, number: u64) -> Self {
        let parts = &recording.parts;
        let part = &parts[usize::try_from(number % parts.len() as u64).unwrap()];
        let (from, to) = (disk.moment_of(part.from), disk.moment_of(part.to));
        let mut chance = Seed::new(number);
        // One in sixteen right after it said that it is done.
        let done = chance.below(16) == 0;
        let inside = from + usize::try_from(chance.below((to - from).max(1) as u64)).unwrap();
        Self {
            number,
            operation: part.name.clone(),
            action: action(&part.name),
            moment: if done { to } else { inside },
            done,
        }
    }
}

fn action(operation: &str) -> Action {
    match operation {
        "start" => Action::Start,
        "upgrade" => Action::Upgrade,
        "rollback" => Action::Rollback,
        "restart" => Action::Restart,
        "reset" => Action::Reset,
        other => panic!("a recording of {other} cannot be judged"),
    }
}

pub struct Judge {
    old: String,
    new: String,
    foreign: Foreign,
    programs: Vec<String>,
    agent: Vec<u8>,
    /// Where the machine saw the bundle of the version that is started, and where it is.
    bundle: (PathBuf, PathBuf),
    host_name: String,
    /// Memory in bytes and processors: a version's files depend on them.
    machine: (u64, usize),
    /// Identifiers and names of the bundle's images.
    images: Vec<(String, String)>,
}

/// What containerd calls the images of a bundle once it has them, each with its name: the digest of its configuration.
fn images_of(bundle: &Path) -> Vec<(String, String)> {
    let archives =
        std::fs::read_dir(bundle.join("container-images/amd64")).unwrap().flatten().map(|entry| entry.path());
    let archives = archives.filter(|path| path.extension().is_some_and(|kind| kind == "tar"));
    let image = |archive: PathBuf| {
        let read = |name: &str| -> Value {
            let output = Command::new("tar").arg("-xOf").arg(&archive).arg(name).output().unwrap();
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let listed = read("index.json")["manifests"][0].clone();
        let manifest = read(&format!("blobs/{}", text(&listed["digest"]).replace(':', "/")));
        (text(&manifest["config"]["digest"]), text(&listed["annotations"]["io.containerd.image.name"]))
    };
    archives.map(image).collect()
}

impl Judge {
    pub fn new(
        recording: &Recording,
        foreign: Foreign,
        programs: Vec<String>,
        agent: &Path,
        bundle: &(PathBuf, PathBuf),
    ) -> Self {
        let agent = std::fs::read(agent).unwrap();
        let (old, new) = (recording.old.clone(), recording.new.clone());
        let (host_name, machine) = (NAME.to_owned(), (recording.memory, recording.processors));
        let (bundle, images) = (bundle.clone(), images_of(&bundle.1));
        Self { old, new, foreign, programs, agent, bundle, host_name, machine, images }
    }

    /// Everything about one state but its file system, which was in order.
    pub async fn judge(
        &self,
        case: &Case,
        disk: MemFs,
        programs: &[String],
        reader: &mut Reader,
    ) -> Result<Verdict, Wrong> {
        self.untouched(&disk, "on the disk")?;
        if programs != self.programs {
            let new: Vec<&String> = programs.iter().filter(|line| !self.programs.contains(line)).collect();
            return Err(Wrong::Foreign(format!("programs of others were changed: {new:#?}")));
        }
        let neither = |why: String| Wrong::Neither(why);
        check::readers(case.action, &disk).map_err(neither)?;
        if matches!(case.action, Action::Start | Action::Reset) {
            disk.put(PROGRAM, &self.agent, 0o755).put("/proc/self/status", "Uid:\t0\t0\t0\t0\n", 0o444);
        }
        if case.action == Action::Start && !case.done {
            let (at, from) = &self.bundle;
            disk.put_dir(at, 0o755);
            reader.read_to(&disk, from, at).map_err(|error| Wrong::Neither(format!("the bundle: {error}")))?;
            disk.settle();
        }
        let world = World::boot(disk);
        world.fake.kernel.change(|kernel| {
            kernel.host_name.clone_from(&self.host_name);
            (kernel.memory_bytes, kernel.cpus) = self.machine;
        });
        for (id, tag) in &self.images {
            world.cri.add_image(Image { id: id.clone(), tags: vec![tag.clone()], ..Image::default() });
        }
        check::booted(case.action, &world).map_err(neither)?;
        if world.has_agent() {
            world.daemon().await;
        }
        if matches!(case.action, Action::Start | Action::Reset) && !case.done {
            let again = case.action.run(&world, None).await;
            again.map_err(|why| Wrong::Neither(format!("it cannot be run again: {why}")))?;
        }
        world.fake.fs.take(PROGRAM);
        self.untouched(&world.fake.fs, "after the recovery")?;
        self.ended(case, &world).map_err(neither)
    }

    fn untouched(&self, fs: &MemFs, when: &str) -> Result<(), Wrong> {
        let changes = self.foreign.changes(fs);
        if changes.is_empty() { Ok(()) } else { Err(Wrong::Foreign(format!("{when}: {changes:#?}"))) }
    }

    fn ended(&self, case: &Case, world: &World) -> Result<Verdict, String> {
        if case.action == Action::Reset {
            let left = self.foreign.left(&world.fake.fs);
            return if left.is_empty() { Ok(Verdict::Gone) } else { Err(format!("{left:#?}")) };
        }
        let verdict = match check::node((&self.old, &self.new), world)? {
            check::Verdict::Old => Verdict::Old,
            check::Verdict::New => Verdict::New,
            other => return Err(format!("it ended as {other:?}")),
        };
        let problems = checker::problems(&Recovered { world, foreign: &self.foreign }, &[]);
        if !problems.is_empty() {
            return Err(format!("the crash suite's checker says: {problems:#?}"));
        }
        let allowed: &[Verdict] = match (case.action, case.done) {
            (Action::Upgrade, true) => &[Verdict::New],
            (Action::Upgrade | Action::Rollback, false) => &[Verdict::Old, Verdict::New],
            _ => &[Verdict::Old],
        };
        if !allowed.contains(&verdict) {
            return Err(format!("{verdict:?} runs, not one of {allowed:?}"));
        }
        Ok(verdict)
    }
}
