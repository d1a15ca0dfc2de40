//! Programs and archives of programs into a bundle.

use super::{FILE_MODE, PROGRAM_MODE, Packer, open, settle, version};
use crate::error::ArtifactError;
use crate::install::{Destinations, destination, missing_members};
use crate::names::Role;
use crate::stage::{Draft, Staged};
use crate::tarball::{self, Limits, Member, Packing};
use flate2::Compression;
use flate2::write::GzEncoder;
use flexnode_host::{FileKind, Fs, FsError};
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

impl<'a> Packer<'a> {
    /// Packs one program or archive of programs.
    pub(super) async fn program(&mut self, role: Role, input: &Path) -> Result<(), ArtifactError> {
        let request = self.request;
        let named = version::from_name(role, input, &request.arch)?;
        let mut known = version::told(role, request.versions.of(role), input)?.or(named);
        if matches!(role, Role::Kubectl | Role::KubeProxy) {
            // They come with kubelet; a bundle has one Kubernetes version.
            known = known.or_else(|| self.version(role));
        }
        let staged = if role.is_archive() { self.archive(role, input)? } else { self.single(role, input)? };
        let version = match known {
            Some(version) => version,
            None if role.is_archive() => self.ask_inside(role, &staged, input).await?,
            None => version::ask(self.commands, role, staged.temp(), input).await?,
        };
        self.set_version(role, &version);
        self.place(staged, &role.path(&version, &request.arch), role.has_sidecar())
    }

    /// A program: as it is, or the one member of an archive with its name.
    fn single(&self, role: Role, input: &Path) -> Result<Staged<'a>, ArtifactError> {
        let (packing, mut bytes) = open(self.fs, input)?;
        let machine = match packing {
            Packing::Elf(machine) => machine,
            Packing::Gzip | Packing::Tar => {
                let staged = self.member(role, input, &mut bytes)?;
                self.check_program(staged.temp(), input)?;
                return Ok(staged);
            }
            Packing::Other => {
                return Err(ArtifactError::input(input, "it is neither a Linux program nor an archive"));
            }
        };
        check_machine(machine, &self.request.arch, input)?;
        self.stage(PROGRAM_MODE, &mut bytes, input)
    }

    /// Stages the one member of an archive whose file name is that of the role.
    fn member(&self, role: Role, input: &Path, bytes: &mut dyn std::io::Read) -> Result<Staged<'a>, ArtifactError> {
        let mut found = None;
        let release = role.release_file("", &self.request.arch);
        tarball::walk(bytes, input, Limits::PROGRAMS, &mut |member, bytes| {
            if member.file_name() != role.name() && member.file_name() != release {
                return Ok(());
            }
            if found.is_some() {
                return Err(ArtifactError::input(input, format!("it has more than one {role}")));
            }
            found = Some(self.stage(PROGRAM_MODE, bytes, input)?);
            Ok(())
        })?;
        found.ok_or_else(|| ArtifactError::input(input, format!("it has no {role}")))
    }

    fn check_program(&self, path: &Path, input: &Path) -> Result<(), ArtifactError> {
        match open(self.fs, path)?.0 {
            Packing::Elf(machine) => check_machine(machine, &self.request.arch, input),
            _ => Err(ArtifactError::input(input, "what it holds is no Linux program")),
        }
    }

    /// An archive of programs, gzipped, with all that the role needs in it.
    fn archive(&self, role: Role, input: &Path) -> Result<Staged<'a>, ArtifactError> {
        let is_dir = self.fs.stat(input)?.is_some_and(|stat| stat.kind == FileKind::Dir);
        let staged = if is_dir {
            self.archive_of(&programs_in(self.fs, role, input)?, input)?
        } else {
            let (packing, mut bytes) = open(self.fs, input)?;
            match packing {
                Packing::Gzip => self.stage(FILE_MODE, &mut bytes, input)?,
                Packing::Tar => {
                    let mut packed = flate2::bufread::GzEncoder::new(BufReader::new(bytes), Compression::fast());
                    self.stage(FILE_MODE, &mut packed, input)?
                }
                Packing::Elf(_) if role == Role::Crictl => {
                    self.archive_of(&[("crictl".into(), input.to_path_buf())], input)?
                }
                Packing::Elf(_) | Packing::Other => {
                    return Err(ArtifactError::input(input, "it is neither an archive nor a directory of programs"));
                }
            }
        };
        self.check_members(role, staged.temp(), input)?;
        Ok(staged)
    }

    /// Makes a release archive of programs that lie in a directory, as a distribution installs them.
    fn archive_of(&self, files: &[(String, PathBuf)], input: &Path) -> Result<Staged<'a>, ArtifactError> {
        let failed = |e| ArtifactError::from(FsError::new("pack", input, e));
        let draft = Draft::create(self.fs, &self.incoming(), FILE_MODE)?;
        let mut tar = tar::Builder::new(GzEncoder::new(draft, Compression::fast()));
        for (place, path) in files {
            let size = self.fs.stat(path)?.map_or(0, |stat| stat.size);
            // Nothing of the machine that packs: the same programs give the same archive.
            let mut header = tar::Header::new_ustar();
            header.set_size(size);
            header.set_mode(PROGRAM_MODE);
            tar.append_data(&mut header, place, self.fs.open(path)?.take(size)).map_err(failed)?;
        }
        let draft = tar.into_inner().and_then(GzEncoder::finish).map_err(failed)?;
        let (staged, writer) = draft.finish();
        settle(staged, writer)
    }

    /// Looks through a staged archive as the installation will.
    fn check_members(&self, role: Role, staged: &Path, input: &Path) -> Result<(), ArtifactError> {
        let mut names = Vec::new();
        let mut foreign = None;
        let mut bytes = self.fs.open(staged)?;
        tarball::walk(&mut bytes, input, Limits::PROGRAMS, &mut |member, bytes| {
            if destination(role, member, &anywhere()).is_some() {
                names.push(member.file_name().to_owned());
                let (packing, _) = tarball::peek(bytes).map_err(|e| FsError::new("read", input, e))?;
                if let Packing::Elf(machine) = packing
                    && let Err(error) = check_machine(machine, &self.request.arch, input)
                {
                    foreign.get_or_insert(error);
                }
            }
            Ok(())
        })?;
        if let Some(error) = foreign {
            return Err(error);
        }
        let missing = missing_members(role, &names.iter().map(String::as_str).collect::<Vec<_>>());
        if missing.is_empty() {
            return Ok(());
        }
        Err(ArtifactError::input(input, format!("as {role} it has to hold {}, and does not", missing.join(", "))))
    }

    /// Unpacks the main program of a staged archive for as long as it takes to ask it for its version.
    async fn ask_inside(&self, role: Role, staged: &Staged<'_>, input: &Path) -> Result<String, ArtifactError> {
        let main = match role {
            Role::Cni => "loopback",
            other => other.name(),
        };
        let mut program = None;
        let mut bytes = self.fs.open(staged.temp())?;
        tarball::walk(&mut bytes, input, Limits::PROGRAMS, &mut |member, bytes| {
            if member.file_name() == main && program.is_none() {
                program = Some(self.stage(PROGRAM_MODE, bytes, input)?);
            }
            Ok(())
        })?;
        match program {
            Some(program) => version::ask(self.commands, role, program.temp(), input).await,
            None => Err(ArtifactError::input(input, format!("it has no {main}"))),
        }
    }
}

/// The programs of this role in a directory, links followed, with their names in a release archive. Others that lie there
/// too, as in `/usr/bin`, are left out.
fn programs_in(fs: &dyn Fs, role: Role, dir: &Path) -> Result<Vec<(String, PathBuf)>, ArtifactError> {
    let mut programs = Vec::new();
    for entry in fs.read_dir(dir)? {
        let path = dir.join(&entry.name);
        let Some(stat) = fs.stat(&path)? else { continue };
        let executable = stat.mode & 0o111 != 0;
        let Ok(file) = entry.name.into_string() else { continue };
        let name = if role == Role::Containerd { format!("bin/{file}") } else { file };
        let member = Member { name, executable };
        if stat.kind == FileKind::File && executable && destination(role, &member, &anywhere()).is_some() {
            programs.push((member.name, path));
        }
    }
    Ok(programs)
}

/// Destinations for asking what would be installed.
fn anywhere() -> Destinations {
    Destinations { bin: "/bin".into(), cni: "/cni".into() }
}

/// Numbers from the ELF specification, `e_machine`.
fn check_machine(machine: u16, arch: &str, input: &Path) -> Result<(), ArtifactError> {
    let (known, wanted) = match machine {
        62 => ("amd64", arch == "amd64"),
        183 => ("arm64", arch == "arm64"),
        _ => ("another processor", false),
    };
    if wanted {
        return Ok(());
    }
    Err(ArtifactError::input(input, format!("it is for {known}, the bundle is for {arch}")))
}
