//! `enrol` on a host: what it writes into agent.toml, and what it leaves alone; and `fleet enrol-token`, which makes the token.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Stdio;

use evenkeel_agent::ambient::Machine;
use evenkeel_agent::config::AgentConfig;
use evenkeel_agent::state_dir::StateDir;
use evenkeel_core::sign::PublicKey;
use serde_json::json;

use super::desk::{Desk, HubProcess, Told};
use super::verbs::Fleet;

/// A host, and a hub that expects it.
struct Bench {
    desk: Desk,
    hub: HubProcess,
}

impl Bench {
    /// With an agent.toml that ends so.
    fn new(desired: &str) -> Self {
        let desk = Desk::new();
        let hub = HubProcess::start(&desk, "hub", "127.0.0.1:0");
        let here = desk.path("state").display().to_string();
        desk.write(
            "agent.toml",
            &format!(
                "# Mine.\nhost_id = \"pve1\"   # ours\n\n{desired}[state]\ndir = \"{here}\"\n"
            ),
        );
        let mode = std::fs::Permissions::from_mode(0o640);
        fs_err::set_permissions(desk.path("agent.toml"), mode).unwrap();
        Self { desk, hub }
    }

    fn token(&self, more: &str) -> String {
        self.desk.run(&format!("hub enrol-token pve1 --state hub {more}")).ends_with(0).out
    }

    fn enrol(&self, token: &str, more: &str) -> Told {
        let credential = self.desk.path("credential").display().to_string();
        let line = format!(
            "enrol {}/ --fingerprint {} -c agent.toml --credential-file {credential} {more}",
            self.hub.url, self.hub.fingerprint
        );
        let mut command = self.desk.command(&line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may end before it reads.
        let _ = child.stdin.take().unwrap().write_all(token.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Told {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// The line that stands in agent.toml afterwards.
    fn line(&self) -> String {
        format!(
            "hub = {{ url = \"{}\", fingerprint = \"{}\", credential_file = \"{}\" }}",
            self.hub.url,
            self.hub.fingerprint,
            self.desk.path("credential").display()
        )
    }
}

#[test]
fn enrol_writes_the_hub_into_agent_toml_and_leaves_every_other_byte() {
    let bench = Bench::new("[desired] # from where\n\n");
    let before = bench.desk.read("agent.toml");
    let told = bench.enrol(&bench.token(""), "--yes -o json").ends_with(0);
    assert_eq!(told.json()["configured"], true);
    assert!(told.err.contains(&format!("+ {}", bench.line())), "{told:?}");
    assert!(told.err.contains("systemctl start evenkeel"), "{told:?}");
    let after = bench.desk.read("agent.toml");
    let header = "[desired] # from where\n";
    assert_eq!(after, before.replace(header, &format!("{header}{}\n", bench.line())));
    let mode = bench.desk.path("agent.toml").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    AgentConfig::from_file(&bench.desk.path("agent.toml")).unwrap();
    // The host prints the line by which operators pin it.
    let key = PublicKey::from_line(bench.desk.read("state/host_key.pub").trim()).unwrap();
    let pin = format!("pve1 {key}");
    assert_eq!(told.json()["known_hosts"], json!(pin));
    // Again there is nothing to write.
    let again = bench.enrol(&bench.token("--replace"), "--replace --yes").ends_with(0);
    assert_eq!(again.err, "");
    assert!(again.out.contains(&pin), "{again:?}");
    assert_eq!(bench.desk.read("agent.toml"), after);
}

#[test]
fn without_a_terminal_and_without_yes_it_says_what_to_write() {
    let bench = Bench::new("");
    let before = bench.desk.read("agent.toml");
    let told = bench.enrol(&bench.token(""), "").ends_with(0);
    assert!(
        told.err.contains(&format!("note: write {} under [desired]", bench.line())),
        "{told:?}"
    );
    assert_eq!(bench.desk.read("agent.toml"), before);
}

#[test]
fn a_directory_gives_way_to_a_hub_by_an_explicit_word_only() {
    let bench = Bench::new("[desired]\ndir = \"/etc/evenkeel/desired\"\n\n");
    let before = bench.desk.read("agent.toml");
    let token = bench.token("");
    let refused = bench.enrol(&token, "--yes").ends_with(64);
    assert!(
        refused.err.contains("takes its desired files from /etc/evenkeel/desired"),
        "{refused:?}"
    );
    assert!(refused.err.contains("--replace-dir"), "{refused:?}");
    assert_eq!(bench.desk.read("agent.toml"), before);
    assert!(!bench.desk.path("credential").exists());
    // Nothing was enrolled, so the token is still good.
    let told = bench.enrol(&token, "--yes --replace-dir").ends_with(0);
    assert!(told.err.contains("- dir = \"/etc/evenkeel/desired\""), "{told:?}");
    let wanted = before.replace("dir = \"/etc/evenkeel/desired\"", &bench.line());
    assert_eq!(bench.desk.read("agent.toml"), wanted);
}

#[test]
fn beside_a_running_agent_it_enrols_nothing_and_says_to_stop_it() {
    let bench = Bench::new("");
    let token = bench.token("");
    let agent = StateDir::new(bench.desk.path("state")).lock_journal(&Machine).unwrap();
    let told = bench.enrol(&token, "--yes").ends_with(7);
    assert!(told.err.contains("systemctl stop evenkeel"), "{told:?}");
    drop(agent);
    bench.enrol(&token, "--yes").ends_with(0);
}

#[test]
fn root_enrols_for_the_user_of_the_agent() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = Bench::new("");
    let open = std::fs::Permissions::from_mode(0o711);
    fs_err::set_permissions(bench.desk.path(""), open).unwrap();
    let state = bench.desk.path("state");
    fs_err::create_dir(&state).unwrap();
    fs_err::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    bench.enrol(&bench.token(""), "--yes").ends_with(0);
    let mut journal = fs_err::read_dir(state.join("journal")).unwrap();
    let segment = journal.next().unwrap().unwrap().path();
    for path in [bench.desk.path("credential"), state.join("host_key"), segment] {
        let found = path.metadata().unwrap();
        assert_eq!(found.uid(), NOBODY, "{}", path.display());
        assert_eq!(found.mode() & 0o077, 0, "{}", path.display());
    }
    assert_eq!(bench.desk.path("agent.toml").metadata().unwrap().uid(), 0);
}

#[test]
fn an_admin_makes_tokens_from_afar_and_is_told_what_to_run() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    let one = desk.run("fleet enrol-token pve2 --author author.pub").ends_with(0);
    let is_token = |text: &str| text.starts_with("evke_") && text.len() == 69;
    assert!(is_token(one.out.trim_end()), "the token alone, to be piped: {one:?}");
    let line = one.err.lines().find(|line| line.contains("evenkeel setup")).unwrap().trim();
    let author = desk.key("author");
    let wanted = format!(
        "evenkeel setup --hub {} --fingerprint {} --operational ALICE.pub --recovery VAULT.pub --author '{author} author'",
        fleet.hub.url, fleet.hub.fingerprint
    );
    assert_eq!(line, wanted);
    assert!(!one.err.contains("evke_"), "{one:?}");
    let two = desk.run("fleet enrol-token pve2 pve3").ends_with(0).out;
    let rows: Vec<_> = two.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(rows.iter().map(|(host, _)| *host).collect::<Vec<_>>(), ["pve2", "pve3"]);
    assert!(rows.iter().all(|(_, token)| is_token(token)), "{two}");
    // A host that is known needs a word more, and somebody who is no admin gets none.
    desk.run("fleet enrol-token pve1").ends_with(7);
    desk.run("fleet enrol-token pve1 --replace").ends_with(0);
    desk.run("hub account add eve --role editor --key author.pub --state hub").ends_with(0);
    desk.run(&format!("fleet login {} --as eve --key author", fleet.hub.url)).ends_with(0);
    let denied = desk.run("fleet enrol-token pve2").ends_with(4);
    assert_eq!(denied.out, "");
}
