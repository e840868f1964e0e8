//! `setup` on a node, and back: by stand-ins for pveum, pvesh, systemctl and openssl that keep a state and write down what
//! they were asked, and that refuse what the real ones refuse.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::node_tools;
use crate::support::{Desk, Run};

/// The secret that the stand-in gives a token.
const SECRET: &str = "11111111-2222-4333-8444-555555555555";

/// A machine with a root directory of its own.
struct Bench {
    desk: Desk,
}

impl Bench {
    /// A node of Proxmox VE 8.4 called pve1 with the package installed.
    fn node() -> Self {
        let bench = Self::bare();
        let root = bench.path("root");
        std::fs::create_dir_all(root.join("etc/pve/nodes/pve1")).unwrap();
        symlink("nodes/pve1", root.join("etc/pve/local")).unwrap();
        bench.desk.write("root/etc/pve/pve-root-ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
        let group = rustix::process::getgid().as_raw();
        bench.desk.write("root/etc/group", &format!("root:x:0:\nevenkeel:x:{group}:evenkeel\n"));
        node_tools::install(&bench.path("tools"), node_tools::OPENSSL);
        bench
    }

    /// A machine that is nothing.
    fn bare() -> Self {
        let bench = Self { desk: Desk::new() };
        for directory in
            ["root/etc", "tools", "state/users", "state/roles", "state/tokens", "state/acl"]
        {
            std::fs::create_dir_all(bench.path(directory)).unwrap();
        }
        bench
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.desk.work.path().join(name)
    }

    fn setup(&self, arguments: &[&str]) -> Run {
        let mut command: Command = self.desk.command("setup");
        command.args(["--root", "root"]).args(arguments);
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("tools").display()));
        command.env("STATE", self.path("state"));
        let run = self.desk.finish(command);
        assert!(!run.stdout.contains(SECRET) && !run.stderr.contains(SECRET), "{}", run.stdout);
        run
    }

    /// What was asked since, without what only looks.
    fn changes(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.path("state/calls")).unwrap_or_default();
        let _ = std::fs::remove_file(self.path("state/calls"));
        let looks = [" list", "systemctl cat", "systemctl is-"];
        let changes = calls.lines().filter(|call| !looks.iter().any(|look| call.contains(look)));
        changes.map(str::to_owned).collect()
    }

    fn file(&self, name: &str) -> Option<(u32, String)> {
        let path = self.path("root").join(name);
        let mode = std::fs::metadata(&path).ok()?.permissions().mode() & 0o777;
        Some((mode, std::fs::read_to_string(path).ok()?))
    }

    fn key(&self, name: &str) -> String {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", &format!("{name}@desk"), "-f"])
            .arg(self.path(name))
            .status()
            .unwrap();
        assert!(made.success());
        format!("{name}.pub")
    }
}

fn there(path: &Path) -> bool {
    path.exists()
}

#[test]
fn setup_makes_everything_once_and_remove_takes_it_back() {
    let bench = Bench::node();
    let alice = bench.key("alice");
    let vault = bench.key("vault");
    let keys = ["--operational", &alice, "--recovery", &vault, "-y"];
    let told = bench.setup(&keys).ends_with(0);
    let made = [
        "pveum user add evenkeel@pve --comment the evenkeel agent",
        "pveum role add Evenkeel --privs Datastore.Audit,Sys.Audit,VM.Audit",
        "pveum user token add evenkeel@pve agent --privsep 1 --output-format json",
        "pveum acl modify / --users evenkeel@pve --tokens evenkeel@pve!agent --roles Evenkeel",
        "systemctl enable --now evenkeel.service",
    ];
    assert_eq!(bench.changes(), made, "{}", told.stdout);
    for command in made.iter().filter(|command| !command.contains("comment")) {
        let shown = command.replace("evenkeel@pve!agent", "'evenkeel@pve!agent'");
        let shown = shown.replace(
            "--privs Datastore.Audit,Sys.Audit,VM.Audit",
            "--privs 'Datastore.Audit,Sys.Audit,VM.Audit'",
        );
        assert!(told.stdout.contains(&shown), "{shown} in {}", told.stdout);
    }
    let token = format!("evenkeel@pve!agent={SECRET}\n");
    assert_eq!(bench.file("etc/evenkeel/token"), Some((0o600, token)));
    let (mode, config) = bench.file("etc/evenkeel/agent.toml").unwrap();
    assert_eq!(mode, 0o640);
    for line in
        ["host_id = \"pve1\"", "node = \"pve1\"", "ca_file = \"/etc/evenkeel/pve-root-ca.pem\""]
    {
        assert!(config.lines().any(|there| there == line), "{line} in {config}");
    }
    let (_, trust) = bench.file("etc/evenkeel/trust.toml").unwrap();
    assert!(trust.contains("name = \"alice\"") && trust.contains("name = \"vault\""), "{trust}");
    bench.desk.run("verify", &["--help"]).ends_with(0);

    let again = bench.setup(&keys).ends_with(0);
    assert!(again.stdout.contains("Nothing to do on pve1."), "{}", again.stdout);
    assert_eq!(bench.changes(), Vec::<String>::new());

    bench.setup(&["--remove", "-y"]).ends_with(0);
    let taken_back = [
        "systemctl disable --now evenkeel.service",
        "pveum acl delete / --users evenkeel@pve --tokens evenkeel@pve!agent --roles Evenkeel",
        "pveum user token remove evenkeel@pve agent",
        "pveum user delete evenkeel@pve",
        "pveum role delete Evenkeel",
    ];
    assert_eq!(bench.changes(), taken_back);
    for name in ["token", "agent.toml", "trust.toml", "pve-root-ca.pem"] {
        assert!(!there(&bench.path("root/etc/evenkeel").join(name)), "{name} is still there");
    }
    assert!(there(&bench.path("root/etc/evenkeel/desired")), "desired files are not setup's");
    let nothing = bench.setup(&["--remove", "-y"]).ends_with(0);
    assert!(nothing.stdout.contains("Nothing to do"), "{}", nothing.stdout);
}

#[test]
fn a_dry_run_shows_every_command_and_changes_nothing() {
    let bench = Bench::node();
    let told = bench.setup(&["--dry-run"]).ends_with(0);
    assert_eq!(bench.changes(), Vec::<String>::new());
    assert!(!there(&bench.path("root/etc/evenkeel")));
    for part in [
        "pveum user add",
        "pveum role add",
        "pveum user token add",
        "pveum acl modify",
        "systemctl enable",
        "host_id",
    ] {
        assert!(told.stdout.contains(part), "{part} in {}", told.stdout);
    }
    assert!(told.stdout.contains("nobody may sign yet"), "{}", told.stdout);
    // Without a terminal and without -y nothing is changed either.
    bench.setup(&[]).ends_with(64);
    assert_eq!(bench.changes(), Vec::<String>::new());
}

#[test]
fn the_role_has_the_rights_that_keeping_what_is_declared_takes_and_no_more() {
    let bench = Bench::node();
    bench.setup(&["-y"]).ends_with(0);
    bench.changes();
    let desired = "[guest.101]\nkind = \"lxc\"\nrun = \"running\"\ncores = 2\n";
    bench.desk.write("root/etc/evenkeel/desired/web.toml", desired);
    bench.setup(&["-y"]).ends_with(0);
    let role = "Datastore.Audit,Sys.Audit,VM.Audit,VM.Config.CPU,VM.PowerMgmt";
    assert_eq!(bench.changes(), [format!("pveum role modify Evenkeel --privs {role}")]);
    bench.setup(&["-y", "--for", "backup"]).ends_with(0);
    let more = "Datastore.AllocateSpace,Datastore.Audit,Sys.Audit,VM.Audit,VM.Backup,VM.Config.CPU,VM.PowerMgmt";
    assert_eq!(bench.changes(), [format!("pveum role modify Evenkeel --privs {more}")]);
}

#[test]
fn a_token_whose_secret_is_lost_is_made_anew() {
    let bench = Bench::node();
    bench.setup(&["-y"]).ends_with(0);
    bench.changes();
    std::fs::remove_file(bench.path("root/etc/evenkeel/token")).unwrap();
    bench.setup(&["-y"]).ends_with(0);
    let made = [
        "pveum user token remove evenkeel@pve agent",
        "pveum user token add evenkeel@pve agent --privsep 1 --output-format json",
        "systemctl restart evenkeel.service",
    ];
    assert_eq!(bench.changes(), made);
    assert!(bench.file("etc/evenkeel/token").is_some());
}

#[test]
fn what_the_administrator_wrote_or_others_use_is_left_alone() {
    let bench = Bench::node();
    bench.desk.write("root/etc/evenkeel/agent.toml", "host_id = \"mine\"\n");
    bench.desk.write("root/etc/pve/nodes/pve1/pveproxy-ssl.pem", "custom");
    bench.setup(&["-y"]).ends_with(0);
    assert_eq!(bench.file("etc/evenkeel/agent.toml").unwrap().1, "host_id = \"mine\"\n");
    bench.desk.write("state/tokens/other", "1");
    bench.desk.write("state/acl/ops@pve", "Evenkeel");
    bench.changes();
    let told = bench.setup(&["--remove", "-y"]).ends_with(0);
    let changes = bench.changes().join("\n");
    assert!(!changes.contains("user delete") && !changes.contains("role delete"), "{changes}");
    assert!(told.stdout.contains("another token, other"), "{}", told.stdout);
    assert!(told.stdout.contains("the role Evenkeel stays"), "{}", told.stdout);
    assert!(told.stdout.contains("agent.toml stays"), "{}", told.stdout);
    assert!(bench.file("etc/evenkeel/agent.toml").is_some());
}

#[test]
fn a_certificate_of_the_administrators_own_is_pinned() {
    let bench = Bench::node();
    bench.desk.write("root/etc/pve/nodes/pve1/pveproxy-ssl.pem", "custom");
    bench.setup(&["-y"]).ends_with(0);
    let (_, config) = bench.file("etc/evenkeel/agent.toml").unwrap();
    assert!(config.contains("fingerprint = \"AB:AB:") && !config.contains("ca_file"), "{config}");
}

#[test]
fn a_command_that_fails_is_told_in_its_own_words_and_the_next_run_goes_on() {
    let bench = Bench::node();
    bench.desk.write("state/broken", "");
    let told = bench.setup(&["-y"]).ends_with(1);
    assert!(told.stderr.contains("got lock request timeout"), "{}", told.stderr);
    std::fs::remove_file(bench.path("state/broken")).unwrap();
    bench.changes();
    bench.setup(&["-y"]).ends_with(0);
    assert!(!bench.changes().iter().any(|call| call.starts_with("pveum user add")));
}

#[test]
fn a_node_of_a_fleet_gets_its_hub_and_its_author() {
    let bench = Bench::node();
    // One person's keys, by their comments.
    let keys = ["alice", "vault", "author"].map(|name| bench.key(name));
    let author = bench.desk.read("author.pub").replace("author@desk", "alice@desk");
    let hub = ["--hub", "https://hub.example:8443/", "--fingerprint", "AB", "--dry-run"];
    bench.setup(&[&hub[..], &["--author", &keys[2]]].concat()).ends_with(64);
    let wrong = bench.setup(&["--hub", "http://hub.example", "--dry-run"]).ends_with(3);
    assert!(wrong.stderr.contains("plain http"), "{}", wrong.stderr);
    let signers = ["--operational", &keys[0], "--recovery", &keys[1], "--author", author.trim()];
    let pin = "AB:".repeat(31) + "AB";
    let hub = ["--hub", "https://hub.example:8443/", "--fingerprint", &pin, "--dry-run"];
    let told = bench.setup(&[&hub[..], &signers].concat()).ends_with(0);
    let line = format!(
        "hub = {{ url = \"https://hub.example:8443\", fingerprint = \"{pin}\", credential_file = \
         \"/etc/evenkeel/hub-credential\" }}"
    );
    for part in [&*line, "name = \"alice-author\"", "role = \"author\""] {
        assert!(told.stdout.contains(part), "{part} in {}", told.stdout);
    }
    assert!(!told.stdout.contains("dir = \"/etc/evenkeel/desired\""), "{}", told.stdout);
    let place = |part: &str| told.stdout.find(part).unwrap();
    let (enrols, starts) = ("evenkeel enrol https://hub.example:8443 ", "systemctl enable --now");
    assert!(place(enrols) < place(starts), "it enrols before the agent starts: {}", told.stdout);
    // An agent.toml that takes its desired files from elsewhere stays as it is.
    bench.setup(&["-y"]).ends_with(0);
    let before = bench.file("etc/evenkeel/agent.toml");
    let told = bench.setup(&["--hub", "https://hub.example:8443", "-y"]).ends_with(3);
    assert!(told.stderr.contains("`evenkeel enrol https://hub.example:8443`"), "{}", told.stderr);
    assert_eq!(bench.file("etc/evenkeel/agent.toml"), before);
}

#[test]
fn a_machine_that_is_no_node_is_told_so() {
    let bench = Bench::bare();
    let told = bench.setup(&["-y"]).ends_with(1);
    assert!(told.stderr.contains("this machine is no Proxmox VE node"), "{}", told.stderr);
    let node = Bench::node();
    std::fs::remove_file(node.path("tools/pveum")).unwrap();
    let told = node.setup(&["-y"]).ends_with(1);
    assert!(told.stderr.contains("there is no pveum"), "{}", told.stderr);
}
