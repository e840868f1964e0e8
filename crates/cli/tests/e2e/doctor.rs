//! `doctor` finds what is missing on this machine and on the node, and says what to do about it.

use evenkeel_sim::{Effect, Event};

use crate::support::{Node, Run};

/// A node with two guests and desired files for them.
fn imported() -> Node {
    let node = Node::with_guests(2);
    node.run("import", &["--out", "desired"]).ends_with(0);
    node
}

const HERE: [&str; 4] = ["--desired", "desired", "--state", "state"];

/// Without what the kernel says of this machine's clock, which no test can choose.
fn story(run: &Run) -> String {
    let mut skips = false;
    let kept = run.story();
    let kept = kept.lines().filter(|line| {
        let next_step = line.starts_with("        ");
        skips = line.contains("this machine's clock") || (skips && next_step);
        !skips
    });
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn doctor_with_all_rights_finds_nothing_amiss() {
    let node = imported();
    let told = node.run("doctor", &HERE).ends_with(0);
    insta::assert_snapshot!("doctor-with-all-rights", story(&told));
}

#[test]
fn doctor_runs_before_any_desired_file_exists_and_before_the_first_start() {
    let node = Node::with_guests(2);
    let told = node.run("doctor", &["--state", "state"]).ends_with(0);
    assert!(told.words().contains("nothing is declared yet"), "{}", told.stdout);
    assert!(!node.desk.work.path().join("state").exists(), "looking makes nothing");
    let dir = node.desk.work.path().join("desired");
    let config = format!("[desired]\ndir = \"{}\"\n", dir.display());
    node.desk.write("agent.toml", &config);
    let arguments = ["-c", "agent.toml", "--state", "state"];
    let told = node.run("doctor", &arguments).ends_with(0);
    assert!(told.words().contains("evenkeel import --out"), "{}", told.stdout);
    std::fs::create_dir(dir).unwrap();
    node.run("doctor", &arguments).ends_with(0);
    // Files that somebody names must be there.
    node.run("doctor", &["--desired", "nowhere", "--state", "state"]).ends_with(1);
}

#[test]
fn a_token_without_rights_of_its_own_has_its_user_granted_the_role() {
    let node = imported();
    let told = node.run_as(1, "doctor", &["--node", "pve1", "--desired", "desired"]).ends_with(1);
    assert!(told.words().contains("acl modify / --users 'viewer@pve' --roles"), "{}", told.stdout);
    assert!(!told.words().contains("--tokens"), "{}", told.stdout);
    // Whoever may not look at users is told the command that serves both kinds.
    let told = node.run_as(3, "doctor", &[&HERE[..], &["--node", "pve1"]].concat()).ends_with(1);
    insta::assert_snapshot!("doctor-with-a-token-without-rights", story(&told));
}

#[test]
fn a_token_with_rights_of_its_own_is_granted_the_role_together_with_its_user() {
    let node = imported();
    node.http.node.with(|simulator| {
        let access = &mut simulator.world.access;
        access.add_token("viewer@pve!ro", evenkeel_sim::TOKENS[1].1, true);
        access.grant("/", "viewer@pve!ro", "PVEAuditor");
    });
    let told = node.run_as(1, "doctor", &["--node", "pve1", "--desired", "desired"]).ends_with(1);
    let both = "--users 'viewer@pve' --tokens 'viewer@pve!ro' --roles Evenkeel";
    assert!(told.words().contains(both), "{}", told.stdout);
}

#[test]
fn our_own_tasks_are_ours_and_a_strangers_with_our_token_are_told() {
    let node = imported();
    let guest = "lxc/100".parse().unwrap();
    node.happen(Event::Power { guest, running: false });
    let apply = [&HERE[..], &["-y"]].concat();
    node.run("apply", &apply).ends_with(0);
    let told = node.run("doctor", &HERE).ends_with(0);
    assert!(
        told.words().contains("1 task started with our token, all by this agent"),
        "{}",
        told.stdout
    );
    let told = node.run("doctor", &["--state", "elsewhere"]).ends_with(0);
    assert!(told.words().contains("nobody can tell by whom"), "{}", told.stdout);
    assert!(told.words().contains("--state"), "{}", told.stdout);

    node.post("/nodes/pve1/lxc/100/status/stop", "");
    let told = node.run("doctor", &HERE).ends_with(0);
    assert!(
        told.words().contains("2 tasks started with our token, 1 of them not"),
        "{}",
        told.stdout
    );
    assert!(told.words().contains("warning token"), "{}", told.stdout);
}

#[test]
fn what_is_wrong_on_this_machine_is_told_with_the_next_step() {
    let node = imported();
    crate::daemon::drift(&node, "lxc/100", "1");
    node.run("apply", &[&HERE[..], &["-y"]].concat()).ends_with(0);
    let told = node.run("doctor", &HERE).ends_with(0);
    assert!(told.words().contains("the newest segment is whole"), "{}", told.stdout);

    node.desk.run("freeze", &["--state", "state", "--reason", "disk swap"]).ends_with(0);
    let told = node.run("doctor", &HERE).ends_with(0);
    assert!(
        told.words().contains("warning freeze") && told.words().contains("disk swap"),
        "{}",
        told.stdout
    );
    node.desk.run("thaw", &["--state", "state"]).ends_with(0);

    let work = node.desk.work.path();
    node.desk.write("trust.toml", "version = 1\n[[signers]]\n");
    let config = format!("[trust]\nfile = \"{}\"\n", work.join("trust.toml").display());
    node.desk.write("agent.toml", &config);
    let told = node.run("doctor", &[&HERE[..], &["-c", "agent.toml"]].concat()).ends_with(1);
    assert!(told.words().contains("failed signers"), "{}", told.stdout);

    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(work.join("state"), mode(0o755)).unwrap();
    let told = node.run("doctor", &HERE).ends_with(1);
    assert!(told.words().contains("chmod 700 state"), "{}", told.stdout);
    std::fs::set_permissions(work.join("state"), mode(0o700)).unwrap();

    let file = "state/journal/journal-000001.jsonl";
    let bent = node.desk.read(file).replace("\"kind\":\"set_config\"", "\"kind\":\"set_confiG\"");
    node.desk.write(file, &bent);
    let told = node.run("doctor", &HERE).ends_with(1);
    assert!(told.words().contains("failed journal"), "{}", told.stdout);
    assert!(told.words().contains("evenkeel journal verify"), "{}", told.stdout);
}

#[test]
fn what_this_machine_tells_is_told_even_if_the_server_does_not_answer() {
    let node = imported();
    node.inject(Effect::ProxyStatus { status: 595, executed: false }.on("/version"));
    let told = node.run("doctor", &[&HERE[..], &["--node", "pve1"]].concat()).ends_with(7);
    assert!(
        told.words().contains("not frozen") && told.stderr.contains("could not reach"),
        "{}\n{}",
        told.stdout,
        told.stderr
    );
    let told =
        node.run("doctor", &[&HERE[..], &["--node", "pve1", "-o", "json"]].concat()).ends_with(7);
    assert_eq!(told.json()["format_version"], 1);
}

#[test]
fn a_journal_of_another_machine_is_told_before_an_agent_refuses_to_start_with_it() {
    use evenkeel_agent::journal::{Journal, JournalLimits, RealDisk, Stamp};
    let node = imported();
    let path = node.desk.work.path().join("state");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&path)
        .unwrap();
    let disk = RealDisk::open(path.join("journal")).unwrap();
    let stamp = Stamp { machine: "another".to_owned(), new_epoch: "1".to_owned() };
    let now = jiff::Timestamp::now();
    drop(Journal::open(disk, stamp, JournalLimits::default(), now).unwrap());
    let told = node.run("doctor", &HERE).ends_with(1);
    assert!(told.words().contains("written on another machine"), "{}", told.stdout);
}

#[test]
fn a_write_is_tried_through_the_journal_and_restored() {
    let node = imported();
    let description = || node.stored("lxc/100".parse().unwrap(), "description");
    for text in [None, Some("front end\nsecond line\n".to_owned())] {
        let set = [("description".to_owned(), text)].into();
        node.happen(Event::Edit { guest: "lxc/100".parse().unwrap(), set });
        let before = description();
        let sent = crate::agent::writes(&node).len();
        let no_terminal = node.run("doctor", &["--state", "state", "--write", "100"]).ends_with(64);
        assert!(no_terminal.stderr.contains("-y"), "{}", no_terminal.stderr);
        assert_eq!(crate::agent::writes(&node).len(), sent, "nobody agreed");
        let told =
            node.run("doctor", &["--state", "state", "--write", "lxc/100", "-y"]).ends_with(0);
        let ok = "the description of lxc/100 was written and restored";
        assert!(told.words().contains(ok), "{}\n{}", told.stdout, told.stderr);
        assert_eq!(description(), before);
        assert_eq!(crate::agent::writes(&node).len(), sent + 2);
    }
    let journal = node.desk.read("state/journal/journal-000001.jsonl");
    assert_eq!(journal.matches("\"state\":\"succeeded\"").count(), 4, "{journal}");
    // Whoever comes after a crash in between finds out what stood there.
    let restoring = journal.lines().rfind(|line| line.contains("\"state\":\"started\"")).unwrap();
    assert!(restoring.contains("evenkeel doctor is trying a write"), "{restoring}");
    let trying =
        journal.lines().filter(|line| line.contains("\"state\":\"started\"")).nth(2).unwrap();
    assert!(trying.contains("\"before\"") && trying.contains("front end"), "{trying}");
    node.run("doctor", &["--state", "state", "--write", "999", "-y"]).ends_with(5);
}

#[test]
fn a_write_that_is_killed_half_way_says_what_to_do_and_is_taken_away_by_the_next() {
    let node = imported();
    let guest = "lxc/100".parse().unwrap();
    let set = [("description".to_owned(), Some("front end\n".to_owned()))].into();
    node.happen(Event::Edit { guest, set });
    let slowly = Effect::Latency { ms: 300 }.on("/lxc/100/");
    node.inject(evenkeel_sim::Fault { method: Some("GET".to_owned()), ..slowly });
    let arguments = ["--state", "state", "--write", "lxc/100", "-y"];
    let mut child = node.command_as(0, "doctor", &arguments).spawn().unwrap();
    let now = || node.stored(guest, "description").unwrap();
    let journal = node.desk.work.path().join("state/journal/journal-000001.jsonl");
    let text = || std::fs::read_to_string(&journal).unwrap_or_default();
    crate::agent::wait_for(text, || text().contains("\"state\":\"succeeded\"").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        now().starts_with("front end\n\nevenkeel doctor is trying a write. If you"),
        "{}",
        now()
    );
    let journal = text();
    let started = journal.lines().find(|line| line.contains("\"state\":\"started\"")).unwrap();
    assert!(started.contains("\"before\":{\"description\":\"front end"), "{started}");
    node.run("doctor", &arguments).ends_with(0);
    assert_eq!(now().trim_end(), "front end");
}

#[test]
fn a_write_does_not_go_round_a_freeze_a_lock_or_a_running_agent() {
    let node = imported();
    let write = ["--state", "state", "--write", "lxc/100", "-y"];
    let guest = "lxc/100".parse().unwrap();
    let lock = Some("backup".to_owned());
    node.happen(Event::Lock { guest, lock });
    let told = node.run("doctor", &write).ends_with(7);
    assert!(told.stderr.contains("backup"), "{}", told.stderr);
    node.happen(Event::Lock { guest, lock: None });
    node.desk.run("freeze", &["--state", "state"]).ends_with(0);
    let told = node.run("doctor", &write).ends_with(7);
    assert!(told.stderr.contains("frozen"), "{}", told.stderr);
    node.desk.run("thaw", &["--state", "state"]).ends_with(0);
    crate::agent::configure(&node, &crate::agent::usual(&node));
    let agent = crate::agent::Agent::start(&node);
    crate::agent::status_when(&node, |status| status["agent"]["last_pass"]["ended"] == true);
    let told = node.run("doctor", &write).ends_with(7);
    assert!(told.stderr.contains("stop the agent"), "{}", told.stderr);
    agent.terminate();
    assert_eq!(crate::agent::writes(&node), Vec::<String>::new());
}

#[test]
fn a_write_that_fails_is_told_and_nothing_is_left_behind() {
    let node = imported();
    let fault = Effect::ProxyStatus { status: 595, executed: false }.on("/lxc/100/config");
    node.inject(evenkeel_sim::Fault { method: Some("PUT".to_owned()), ..fault });
    let told = node.run("doctor", &["--state", "state", "--write", "lxc/100", "-y"]);
    assert_ne!(told.code, 0, "{}", told.stdout);
    assert!(told.stderr.contains("lxc/100") && told.stderr.contains("hint:"), "{}", told.stderr);
    let now = node.stored("lxc/100".parse().unwrap(), "description").unwrap_or_default();
    assert!(!now.contains("evenkeel doctor"), "{now}");
}

#[test]
fn doctor_warns_of_a_clock_that_is_off() {
    let node = imported();
    node.http.node.with(|simulator| simulator.world.epoch_s -= 7300);
    let told = node.run("doctor", &HERE).ends_with(0);
    assert!(told.words().contains("the node's clock is 2 h 1 min behind ours"), "{}", told.stdout);
}
