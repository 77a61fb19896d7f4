//! Loads of several machines that a batch system starts: GNU parallel and Slurm by the lines of the docs, Kubernetes by
//! the manifests in `deploy/kubernetes`, which are also checked against the models of Kubernetes' own client, which are
//! generated from its OpenAPI schemas.

mod slurm;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Run, Running, Said, SecuredNats, client_and_server, program};

/// Where `scripts/setup.sh` puts it.
const KUBECTL: &str = "/var/cache/udpath/kubectl";
/// Reads YAML, and writes its documents as JSON if they are the same after the client has read them: it drops unknown
/// fields, and converts what has another type.
const CHECK: &str = r#"
import json, sys, yaml
from kubernetes import client
api = client.ApiClient()
class Text:
    def __init__(self, document):
        self.data = json.dumps(document)
documents = list(yaml.safe_load_all(sys.stdin))
for document in documents:
    version = document["apiVersion"].split("/")[-1].capitalize()
    read = api.deserialize(Text(document), version + document["kind"])
    if api.sanitize_for_serialization(read) != document:
        sys.exit(document["kind"] + ": unknown fields or other types")
print(json.dumps(documents))
"#;
/// Time until loads start, for `date`: all processes run by then.
const SOON: &str = "+8 seconds";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The script that follows this paragraph of docs/load-from-ten-machines.md, with what differs here replaced.
fn documented(paragraph: &str, here: &[(&str, &str)]) -> String {
    let page = fs::read_to_string(repository("docs/load-from-ten-machines.md")).unwrap();
    let block = page.split(paragraph).nth(1).unwrap().split("\n\n").nth(1).unwrap();
    here.iter().fold(block.to_owned(), |text, (there, here)| {
        assert!(text.contains(there), "{there:?} is not in {text}");
        text.replace(there, here)
    })
}

/// A server in a lab; the programs of these tests run beside it.
struct Bed {
    lab: Lab,
    target: String,
    _server: Running,
    folder: tempfile::TempDir,
}

impl Bed {
    fn new(name: &str) -> Self {
        let lab = client_and_server(name, 1);
        let target = format!("{}:7", lab.address_of("server", "client").unwrap().ipv4);
        let mut command = lab.machine("server").unwrap().command(program());
        command.args(["serve", "echo", "--bind", &target]);
        let mut server = Run::of(command, "serve").within(udpath_rig::TIMEOUT * 4).start();
        server.says("ready");
        Self { lab, target, _server: server, folder: tempfile::tempdir().unwrap() }
    }

    /// The folder's `bin`, new, with udpath.
    fn bin(&self) -> PathBuf {
        let bin = self.folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(program(), bin.join("udpath")).unwrap();
        bin
    }

    /// Runs a shell script on the client, in the folder, whose `bin` is searched first.
    fn shell(&self, script: &str) -> Said {
        let bin = self.folder.path().join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = self.lab.machine("client").unwrap().command("sh");
        command.args(["-e", "-c", script]).current_dir(self.folder.path()).env("PATH", path);
        Said::from(command.env("HOME", self.folder.path()).stdin(Stdio::null()).output().unwrap())
    }
}

#[test]
fn the_line_for_gnu_parallel_runs() {
    udpath_lab::needs_root!();
    let bed = Bed::new("parallel");
    let here = [
        ("10.0.0.2:7", bed.target.as_str()),
        ("--rate 900k -d 30s", "--rate 2k -d 500ms"),
        ("+20 seconds", SOON),
    ];
    let script = documented("GNU parallel, ", &here);
    let bin = bed.bin();
    // As ssh does: a shell runs the words behind the host.
    fs::write(bin.join("ssh"), "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let hosts: String = (1..=10).map(|number| format!("host{number}\n")).collect();
    fs::write(bed.folder.path().join("hosts"), hosts).unwrap();
    let said = bed.shell(&script);
    assert!(said.fine().out.contains("10 of 10 segments"), "{}", said.out);
    bed.lab.down().unwrap();
}

/// Runs the check of manifests.
fn checked(yaml: &[u8]) -> Output {
    // Debian's, which has Debian's modules.
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", CHECK]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().unwrap();
    child.stdin.take().unwrap().write_all(yaml).unwrap();
    child.wait_with_output().unwrap()
}

/// The objects that `kubectl apply -k` would make of a folder.
fn rendered(name: &str) -> Vec<u8> {
    let mut kubectl = Command::new(KUBECTL);
    kubectl.arg("kustomize").arg(repository("deploy/kubernetes").join(name));
    let done = kubectl.output().unwrap_or_else(|error| panic!("{KUBECTL}: {error}; run scripts/setup.sh"));
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

/// The container of the one workload in a folder, with its environment as far as ConfigMaps give it, and the workload.
fn container(name: &str) -> (Value, BTreeMap<String, String>, Value) {
    let done = checked(&rendered(name));
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    let objects: Vec<Value> = serde_json::from_value(udpath_rig::json(&done.stdout)).unwrap();
    assert!(objects.iter().all(|object| object["metadata"]["namespace"] == "udpath"), "{objects:?}");
    let (maps, mut others): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "ConfigMap");
    let workload = others.pop().unwrap();
    let [container] = &workload["spec"]["template"]["spec"]["containers"].as_array().unwrap()[..] else {
        panic!("{workload}")
    };
    assert_eq!(container["image"], concat!("udpath:", env!("CARGO_PKG_VERSION")));
    let mut environment = BTreeMap::new();
    for from in container["envFrom"].as_array().unwrap_or(&Vec::new()) {
        let wanted = &from["configMapRef"]["name"];
        let map = maps.iter().find(|map| &map["metadata"]["name"] == wanted).unwrap();
        let data = map["data"].as_object().unwrap();
        environment
            .extend(data.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())));
    }
    (container.clone(), environment, workload)
}

/// A container's arguments, with `$(NAME)` replaced as the kubelet does.
fn arguments(container: &Value, environment: &BTreeMap<String, String>) -> Vec<String> {
    let arguments = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    arguments
        .map(|argument| {
            let filled = environment
                .iter()
                .fold(argument.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value));
            assert!(!filled.contains("$("), "{filled}");
            filled
        })
        .collect()
}

#[test]
fn the_pods_of_the_job_carry_out_one_load() {
    udpath_lab::needs_root!();
    let bed = Bed::new("pods");
    let (container, mut environment, job) = container("load");
    let segments = environment["SEGMENTS"].clone();
    assert_eq!(job["spec"]["completions"].to_string(), segments);
    assert_eq!(job["spec"]["parallelism"].to_string(), segments);
    let start = Command::new("date").args(["-u", "-d", SOON, "+%FT%TZ"]).output().unwrap();
    let start = String::from_utf8(start.stdout).unwrap().trim().to_owned();
    for (name, value) in
        [("TARGET", &bed.target[..]), ("RATE", "2k"), ("DURATION", "500ms"), ("START_AT", &start)]
    {
        assert!(environment.insert(name.to_owned(), value.to_owned()).is_some(), "{name}");
    }
    let pods: Vec<Running> = (0..segments.parse().unwrap())
        .map(|index: u32| {
            environment.insert("JOB_COMPLETION_INDEX".to_owned(), index.to_string());
            let mut command = bed.lab.machine("client").unwrap().command(program());
            command.args(arguments(&container, &environment));
            Run::of(command, "load").start_with(|command| bed.lab.spawn(command))
        })
        .collect();
    for (index, pod) in pods.into_iter().enumerate() {
        let ended = pod.finish();
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        // Of a log, which has stderr as well, the line that begins with { is the result.
        assert_eq!(ended.out.lines().filter(|line| line.starts_with('{')).count(), 1, "{}", ended.out);
        assert!(!ended.err.lines().any(|line| line.starts_with('{')), "{}", ended.err);
        fs::write(bed.folder.path().join(format!("{index}.json")), ended.out).unwrap();
    }
    let said = bed.shell(&format!("{} merge *.json", program().display()));
    assert!(said.fine().out.contains("10 of 10 segments"), "{}", said.out);
    bed.lab.down().unwrap();
}

#[test]
fn the_pods_of_the_daemon_sets_start() {
    let (export, mut environment, _) = container("export");
    environment.insert("HOST_IP".to_owned(), "127.0.0.1".to_owned());
    let words = arguments(&export, &environment).join(" ").replace(":9453", ":0");
    let mut running = Run::new(&words.split(' ').collect::<Vec<_>>()).start();
    running.says("http://127.0.0.1:");
    drop(running);

    let (agent, mut environment, _) = container("agent");
    environment.insert("NODE".to_owned(), "node1".to_owned());
    environment.insert("NATS".to_owned(), "nats://".to_owned());
    let words = arguments(&agent, &environment);
    let ended = Run::new(&words.iter().map(String::as_str).collect::<Vec<_>>()).finish();
    // Its own complaint about the Secret that is not there, not one about arguments.
    let secret = "cannot read /etc/udpath/nats/agent.creds: No such file";
    assert!(ended.err.contains(secret) && !ended.err.contains("argument"), "{}", ended.err);
}

/// With the Secret's files, a server that has TLS and users, and the name that a node has in most clouds.
#[test]
fn the_agents_of_the_daemon_set_connect_with_the_secret() {
    udpath_lab::needs_root!();
    let bed = Bed::new("secret");
    let address = bed.target.split(':').next().unwrap();
    let nats = SecuredNats::new(address);
    let start = |machine: &str, program: &Path, arguments: &[String]| {
        let mut command = bed.lab.machine(machine).unwrap().command(program);
        command.args(arguments);
        Run::of(command, &arguments.join(" ")).start_with(|command| bed.lab.spawn(command))
    };
    let server = ["-a", address, "-p", "4222", "-c", &nats.file("nats.conf")].map(str::to_owned);
    let mut server = start("server", Path::new("nats-server"), &server);
    server.says("Server is ready");

    let (agent, mut environment, workload) = container("agent");
    let node = "ip-10-0-0-1.eu-west-1.compute.internal";
    for (name, value) in [("NODE", node), ("NATS", &format!("tls://{address}:4222")), ("ALLOW", &bed.target)]
    {
        environment.insert(name.to_owned(), value.to_owned());
    }
    let volume = &workload["spec"]["template"]["spec"]["volumes"][0];
    let mount = &agent["volumeMounts"][0];
    assert_eq!(
        (&volume["secret"]["secretName"], &volume["name"]),
        (&Value::from("udpath-nats"), &mount["name"])
    );
    let folder = nats.folder().display().to_string();
    let filled = arguments(&agent, &environment);
    let mut words: Vec<String> =
        filled.iter().map(|word| word.replace(mount["mountPath"].as_str().unwrap(), &folder)).collect();
    words.push("--user=nobody".to_owned());
    let mut agent = start("client", &program(), &words);
    agent.says(&format!("{node}: ready for loads"));
    let (server, ca, callers) =
        (format!("tls://{address}:4222"), nats.file("ca.pem"), nats.file("caller.creds"));
    let load = ["load", "echo", &bed.target, "--fleet", &server, "--tls-ca", &ca, "--creds", &callers]
        .into_iter()
        .chain(["--agents", "1", "--rate", "100", "-d", "300ms", "--lead", "500ms", "--gather", "10s"]);
    let ended = start("client", &program(), &load.map(str::to_owned).collect::<Vec<_>>()).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(ended.out.contains(node), "{}", ended.out);
    drop(agent);
    bed.lab.down().unwrap();
}

/// What every pod is restricted to, and the memory that it may have.
#[test]
fn pods_have_resources_and_the_seccomp_profile_of_the_runtime() {
    for name in ["load", "agent", "export"] {
        let (container, _, workload) = container(name);
        let pod = &workload["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        for of in [&container["resources"]["requests"], &container["resources"]["limits"]] {
            assert!(of["memory"].is_string(), "{name}: {container}");
        }
        let context = &container["securityContext"];
        assert_eq!(context["capabilities"]["drop"][0], "ALL", "{name}");
        assert_eq!(
            (&context["allowPrivilegeEscalation"], &context["readOnlyRootFilesystem"]),
            (&false.into(), &true.into())
        );
    }
}

/// The check of manifests can fail.
#[test]
fn unknown_fields_of_manifests_are_found() {
    let sound = String::from_utf8(rendered("load")).unwrap();
    for (from, to) in [
        ("completions: 10", "completion: 10"),
        ("completions: 10", "completions: \"10\""),
        ("image: ", "images: "),
    ] {
        assert!(sound.contains(from), "{sound}");
        assert!(!checked(sound.replace(from, to).as_bytes()).status.success(), "{to}");
    }
}
