//! A real control plane in the lab's network namespace.

use crate::kubernetes;
use crate::lab::Lab;
use crate::objects::{BOOTSTRAPPERS, binding, token_object};
use crate::packages::{Packages, Suite};
use crate::pki::Authority;
use crate::poll;
use crate::process::{Process, uuid};
use crate::record::Record;
use crate::run::{Input, Output, run, tail};
use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(100);
/// The address that the cluster's DNS service has by convention; nothing answers there.
pub const DNS_SERVICE: &str = "10.96.0.10";

pub use crate::objects::Token;

/// A program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
}

impl Program {
    const ALL: [Self; 4] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler];

    /// The program's file name; its log is `NAME.log` in the control plane's directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
        }
    }
}

/// What may differ between control planes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Requests of new nodes for a certificate stay pending until [`ControlPlane::approve`].
    pub manual_approval: bool,
    /// More arguments for a program.
    pub arguments: Vec<(Program, String)>,
    /// It takes the place of an earlier one, whose files [`ControlPlane::keep_identity`] put into this directory: nodes
    /// that joined that one take it for the same.
    pub identity: Option<PathBuf>,
}

/// What a node knows a cluster by, and what the cluster knows a node by.
const IDENTITY: [&str; 5] = ["ca.crt", "ca.key", "sa.key", "sa.pub", "token"];

/// etcd, kube-apiserver, kube-controller-manager and kube-scheduler of a lab. They end when this is dropped, unless the lab is kept.
#[derive(Debug)]
pub struct ControlPlane {
    lab: Lab,
    record: Record,
    options: Options,
    programs: PathBuf,
    etcd: PathBuf,
    authority: Authority,
    children: Mutex<Vec<Child>>,
    /// It is ready: before that it goes also when the lab is kept.
    complete: bool,
}

impl ControlPlane {
    /// Brings one up in the lab. It is ready when this returns: the API server answers, pods can be made, nodes can join
    /// with [`ControlPlane::token`].
    pub fn new(lab: &Lab, options: &Options) -> Result<Self> {
        let (programs, etcd) = (kubernetes::programs(kubernetes::NEW)?, Packages::of(Suite::Forky)?.program("etcd")?);
        let record = Record::create(&lab.record().part("control-plane"))?;
        let authority = match &options.identity {
            None => Authority::create(&record.folder, "lab-ca")?,
            Some(earlier) => {
                copy_identity(earlier, &record.folder)?;
                Authority::open(&record.folder)
            }
        };
        let mut this = Self {
            lab: lab.clone(),
            record,
            options: options.clone(),
            programs,
            etcd,
            authority,
            children: Mutex::default(),
            complete: false,
        };
        this.make_credentials()?;
        for program in Program::ALL {
            this.start(program)?;
        }
        this.set_up().context("cannot set up the cluster")?;
        this.complete = true;
        Ok(this)
    }

    /// The control plane of a lab that was kept.
    pub fn open(lab: &Lab) -> Result<Self> {
        let record = Record::open(&lab.record().part("control-plane"))?;
        let authority = Authority::open(&record.folder);
        let (programs, etcd) = (kubernetes::programs(kubernetes::NEW)?, Packages::of(Suite::Forky)?.program("etcd")?);
        let options = Options::default();
        Ok(Self {
            lab: lab.clone(),
            record,
            options,
            programs,
            etcd,
            authority,
            children: Mutex::default(),
            complete: true,
        })
    }

    /// `10.99.SLOT.1:6443`.
    pub fn address(&self) -> String {
        format!("{}:6443", self.lab.gateway())
    }

    /// The URL of the API server.
    pub fn server(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The certificate of the cluster's authority, as PEM.
    pub fn ca(&self) -> Result<String> {
        self.authority.certificate()
    }

    /// The cluster's authority, to make more credentials.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The bootstrap token that every cluster of a lab has.
    pub fn token(&self) -> Result<String> {
        let path = self.record.folder.join("token");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Copies what [`Options::identity`] takes into a directory, which is made: keys of this cluster among it.
    pub fn keep_identity(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        copy_identity(&self.record.folder, folder)
    }

    /// The administrator's kubeconfig. Its server is reached from the lab's network namespace and from hosts.
    pub fn kubeconfig(&self) -> PathBuf {
        self.record.folder.join("admin.kubeconfig")
    }

    /// The log of a program.
    pub fn log(&self, program: Program) -> PathBuf {
        self.record.folder.join(format!("{}.log", program.name()))
    }

    /// Runs kubectl as administrator, however it ends.
    pub fn kubectl(&self, words: &[&str]) -> Result<Output> {
        self.kubectl_with(words, b"")
    }

    /// Runs kubectl as administrator with something to read.
    pub fn kubectl_with(&self, words: &[&str], input: &[u8]) -> Result<Output> {
        run(self.kubectl_command().args(words), Input::Bytes(input), LIMIT)
    }

    /// kubectl as administrator, without its arguments. Standard streams are the caller's to set.
    pub fn kubectl_command(&self) -> Command {
        let mut command = self.lab.command(&self.programs.join("kubectl"));
        // Discovery is kept on disk by address, and addresses are used again by other clusters.
        let cache = self.record.folder.join("kubectl-cache");
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--cache-dir").arg(cache);
        command
    }

    /// `kubectl get WORDS -o json`; an error when that fails.
    pub fn get(&self, words: &[&str]) -> Result<Value> {
        let words: Vec<&str> = ["get", "-o", "json"].into_iter().chain(words.iter().copied()).collect();
        let output = self.kubectl(&words)?.success().with_context(|| format!("kubectl {}", words.join(" ")))?;
        Ok(serde_json::from_str(&output.stdout)?)
    }

    /// Applies an object, or a list of kind `List`.
    pub fn apply(&self, object: &Value) -> Result<()> {
        let output = self.kubectl_with(&["apply", "--server-side", "-f", "-"], object.to_string().as_bytes())?;
        output.success().context("kubectl apply")?;
        Ok(())
    }

    /// Makes a bootstrap token and gives it.
    pub fn add_token(&self, token: &Token) -> Result<String> {
        let random = uuid()?;
        let (id, secret) = (&random[..6], &random[6..22]);
        self.apply(&token_object(id, secret, token))?;
        Ok(format!("{id}.{secret}"))
    }

    /// The names of certificate signing requests that wait for approval.
    pub fn pending_requests(&self) -> Result<Vec<String>> {
        let list = self.get(&["csr"])?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let waiting = items.iter().filter(|item| item["status"]["conditions"].as_array().is_none_or(Vec::is_empty));
        Ok(waiting.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }

    /// Approves a certificate signing request.
    pub fn approve(&self, name: &str) -> Result<()> {
        self.kubectl(&["certificate", "approve", name])?.success()?;
        Ok(())
    }

    /// Waits until a Node is Ready.
    pub fn wait_ready(&self, node: &str, limit: Duration) -> Result<()> {
        poll(limit, Duration::from_millis(200), &format!("node {node} to be Ready"), || {
            let object = self.get(&["node", node])?;
            let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
            match ready {
                Some(condition) if condition["status"] == "True" => Ok(Some(())),
                Some(condition) => bail!("it says {}", condition["message"]),
                None => Ok(None),
            }
        })
    }

    /// Ends a program and waits for it: for tests of what happens without it.
    pub fn stop(&self, program: Program) -> Result<()> {
        for (name, process) in self.record.processes() {
            if name == program.name() {
                process.end(Some(Duration::from_secs(10)))?;
            }
        }
        self.reap();
        Ok(())
    }

    /// Starts a program again, and waits until the API server is ready when it is that.
    pub fn start(&self, program: Program) -> Result<()> {
        let mut command = self.lab.command(&if program == Program::Etcd {
            self.etcd.clone()
        } else {
            self.programs.join(program.name())
        });
        command.args(self.arguments(program)).current_dir(&self.record.folder);
        let more = self.options.arguments.iter().filter(|(of, _)| *of == program);
        command.args(more.map(|(_, argument)| argument));
        let log = File::options().create(true).append(true).open(self.log(program))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot run {}", program.name()))?;
        if let Some(process) = Process::find(child.id().cast_signed()) {
            self.record.add_process(program.name(), &process)?;
        }
        self.children.lock().map_err(|_| anyhow!("a thread panicked while it started a program"))?.push(child);
        if program == Program::ApiServer { self.wait_api_server() } else { Ok(()) }
    }

    fn wait_api_server(&self) -> Result<()> {
        let program = Program::ApiServer;
        poll(LIMIT, SOON, "the API server to be ready", || {
            if !self.record.processes().iter().any(|(name, _)| name == program.name()) {
                let log = fs::read_to_string(self.log(program)).unwrap_or_default();
                return Ok(Some(Err(anyhow!("{} ended: {}", program.name(), tail(&log, 1000)))));
            }
            // Cheap to ask until the port is open: kubectl would take the processor from the one that it waits for.
            self.lab.in_network(|| TcpStream::connect(self.address()).map(|_| ()))??;
            Ok((self.kubectl(&["get", "--raw", "/readyz"])?.stdout.trim() == "ok").then_some(Ok(())))
        })?
    }

    fn set_up(&self) -> Result<()> {
        if self.options.identity.is_none() {
            let random = uuid()?;
            fs::write(self.record.folder.join("token"), format!("{}.{}", &random[..6], &random[6..22]))?;
        }
        let token = self.token()?;
        let (id, secret) = token.split_once('.').context("the token has no dot")?;
        let mut items = vec![
            token_object(id, secret, &Token::default()),
            binding("lab-bootstrap", "system:node-bootstrapper", BOOTSTRAPPERS),
        ];
        if !self.options.manual_approval {
            let role = "system:certificates.k8s.io:certificatesigningrequests";
            items.push(binding("lab-approve", &format!("{role}:nodeclient"), BOOTSTRAPPERS));
            items.push(binding("lab-renew", &format!("{role}:selfnodeclient"), "system:nodes"));
        }
        // The controller manager makes it too, some seconds later; pods are refused without it.
        items.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"},
        }));
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}))
    }

    fn make_credentials(&self) -> Result<()> {
        let (authority, address) = (&self.authority, self.lab.gateway());
        let names =
            format!("subjectAltName=IP:{address},IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc");
        authority.issue("apiserver", "/CN=kube-apiserver", &format!("{names}\nextendedKeyUsage=serverAuth\n"))?;
        for (name, subject) in [
            ("admin", "/O=system:masters/CN=admin"),
            ("controller", "/CN=system:kube-controller-manager"),
            ("scheduler", "/CN=system:kube-scheduler"),
            ("kubelet-client", "/O=system:masters/CN=kubelet-client"),
        ] {
            self.make_kubeconfig(name, subject)?;
        }
        authority.key_pair("sa")
    }

    /// Makes a client certificate of the cluster's authority and a kubeconfig with it; gives its path.
    pub fn make_kubeconfig(&self, name: &str, subject: &str) -> Result<PathBuf> {
        self.authority.issue(name, subject, "extendedKeyUsage=clientAuth\n")?;
        let data = |file: String| Ok::<_, anyhow::Error>(BASE64.encode(fs::read(self.authority.path(&file))?));
        let cluster = json!({"server": self.server(), "certificate-authority-data": data("ca.crt".to_owned())?});
        let (certificate, key) = (data(format!("{name}.crt"))?, data(format!("{name}.key"))?);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": name, "user": {"client-certificate-data": certificate, "client-key-data": key}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
        });
        let path = self.record.folder.join(format!("{name}.kubeconfig"));
        fs::write(&path, config.to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    fn arguments(&self, program: Program) -> Vec<String> {
        let store = "http://127.0.0.1:2379";
        let text = match program {
            Program::Etcd => format!(
                "--data-dir=etcd --listen-client-urls={store} --advertise-client-urls={store} \
                 --listen-peer-urls=http://127.0.0.1:2380 --unsafe-no-fsync"
            ),
            Program::ApiServer => format!(
                "--etcd-servers={store} --bind-address=0.0.0.0 --advertise-address={} --secure-port=6443 \
                 --service-cluster-ip-range=10.96.0.0/16 --client-ca-file=ca.crt --tls-cert-file=apiserver.crt \
                 --tls-private-key-file=apiserver.key --service-account-issuer=https://kubernetes.default.svc \
                 --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key \
                 --kubelet-client-certificate=kubelet-client.crt --kubelet-client-key=kubelet-client.key \
                 --kubelet-preferred-address-types=InternalIP --authorization-mode=Node,RBAC \
                 --enable-bootstrap-token-auth --enable-admission-plugins=NodeRestriction",
                self.lab.gateway()
            ),
            Program::ControllerManager => "--kubeconfig=controller.kubeconfig --cluster-signing-cert-file=ca.crt \
                 --cluster-signing-key-file=ca.key --root-ca-file=ca.crt --service-account-private-key-file=sa.key \
                 --use-service-account-credentials --leader-elect=false --controllers=*,bootstrapsigner,tokencleaner"
                .to_owned(),
            Program::Scheduler => "--kubeconfig=scheduler.kubeconfig --leader-elect=false".to_owned(),
        };
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Takes the exit codes of programs that ended, so that none stays a zombie.
    fn reap(&self) {
        if let Ok(mut children) = self.children.lock() {
            children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        }
    }
}

fn copy_identity(from: &Path, to: &Path) -> Result<()> {
    for file in IDENTITY {
        fs::copy(from.join(file), to.join(file)).with_context(|| format!("cannot copy {file} of a cluster"))?;
    }
    Ok(())
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.complete && self.lab.is_kept() {
            return;
        }
        if let Err(error) = self.record.remove() {
            eprintln!("lab: {error:#}");
        }
        self.reap();
    }
}
