//! Certificates of a lab: an authority and what it signs, by the openssl program.

use crate::run::{Input, must, run};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// A certificate authority with its files in one directory.
#[derive(Clone, Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes `ca.crt` and `ca.key` in the directory.
    pub fn create(folder: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let authority = Self { folder: folder.to_owned() };
        let subject = format!("/CN={name}");
        let mut command =
            authority.openssl(&["req", "-x509", "-nodes", "-days", "30", "-keyout", "ca.key", "-out", "ca.crt"]);
        must(command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", &subject]), LIMIT)?;
        Ok(authority)
    }

    /// The authority of a directory that has one.
    pub fn open(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Makes `NAME.crt` and `NAME.key`. `subject` is `/O=…/CN=…`; `extensions` are lines of an openssl configuration.
    pub fn issue(&self, name: &str, subject: &str, extensions: &str) -> Result<()> {
        let (key, request, certificate) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        let mut command = self.openssl(&["req", "-new", "-nodes", "-keyout", &key, "-out", &request]);
        must(command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", subject]), LIMIT)?;
        let mut command = self.openssl(&["x509", "-req", "-in", &request, "-out", &certificate, "-days", "30"]);
        command.args(["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "/dev/stdin"]);
        let signed = run(&mut command, Input::Bytes(extensions.as_bytes()), LIMIT)?.success();
        signed.with_context(|| format!("cannot sign {certificate}"))?;
        Ok(())
    }

    /// Makes `NAME.key` and `NAME.pub`, a pair without a certificate.
    pub fn key_pair(&self, name: &str) -> Result<()> {
        let (key, public) = (format!("{name}.key"), format!("{name}.pub"));
        must(&mut self.openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]), LIMIT)?;
        must(&mut self.openssl(&["pkey", "-in", &key, "-pubout", "-out", &public]), LIMIT)?;
        Ok(())
    }

    /// The authority's certificate, as PEM.
    pub fn certificate(&self) -> Result<String> {
        let path = self.path("ca.crt");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The path of a file of the authority.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn openssl(&self, words: &[&str]) -> Command {
        let mut command = Command::new("openssl");
        command.args(words).current_dir(&self.folder);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::Authority;
    use crate::run::must;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn what_it_signs_verifies_with_its_extensions() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), "some-ca").unwrap();
        authority.issue("web", "/O=a/CN=b", "subjectAltName=IP:10.0.0.1\nextendedKeyUsage=serverAuth\n").unwrap();
        let mut verify = Command::new("openssl");
        verify.args(["verify", "-purpose", "sslserver", "-verify_ip", "10.0.0.1", "-CAfile"]);
        must(verify.arg(authority.path("ca.crt")).arg(authority.path("web.crt")), Duration::from_secs(20)).unwrap();
    }
}
