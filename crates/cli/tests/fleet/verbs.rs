//! From nothing to a document in effect, an item signed through the hub, and a hub that is gone or another.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use evenkeel_core::fleet::{
    DocumentFiles, EnvelopeVerdict, Generation, GenerationState, HostReport, PendingReport,
    SealedText, VerdictStatement, WireFile,
};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{Envelope, HostBinding, Nonce, PendingItem};
use evenkeel_hub::store::{DocumentRow, NewDraft, QueuedEnvelope};
use serde_json::json;

use super::desk::{Behind, Desk, HubProcess, PATIENCE};
use evenkeel_testkit::destroy_item::destroy_item;

pub(crate) const TWO: &str = "[guest.101]\nkind = \"lxc\"\nhostname = \"web\"\ncores = 2\n";

pub(crate) struct Fleet {
    pub(crate) desk: Desk,
    pub(crate) hub: HubProcess,
    pub(crate) behind: Behind,
}

impl Fleet {
    /// A hub with one host and one account, and a person who is logged in.
    pub(crate) fn new() -> Self {
        let desk = Desk::new();
        let hub = HubProcess::start(&desk, "hub", "127.0.0.1:0");
        let behind = Behind::open(&desk.path("hub"));
        behind.enrol("pve1", &desk.key("host"));
        desk.run("hub account add alice --role admin --key alice.pub --state hub").ends_with(0);
        let fleet = Self { desk, hub, behind };
        fleet.login();
        fleet
    }

    fn login(&self) {
        let line = format!(
            "fleet login {} --key alice --fingerprint {} -o json",
            self.hub.url, self.hub.fingerprint
        );
        let told = self.desk.run(&line).ends_with(0).json();
        assert_eq!((&told["account"], &told["role"]), (&json!("alice"), &json!("admin")));
    }

    pub(crate) fn pin_host(&self) {
        let line = format!("pve1 {}\n", self.desk.key("host"));
        self.desk.write("home/.config/evenkeel/known_hosts", &line);
    }

    /// What the host calls itself.
    pub(crate) fn host(&self) -> HostBinding {
        HostBinding { id: "pve1".parse().unwrap(), key: self.desk.key("host").fingerprint() }
    }

    /// A guest of the host that is to be destroyed.
    pub(crate) fn item(&self) -> PendingItem {
        let now = jiff::Timestamp::now().as_second().unsigned_abs();
        destroy_item(self.host(), Nonce::from_random([5; 16]).unwrap(), UnixSeconds(now - 60))
    }

    /// Bytes as a key signs them, by the installed tool.
    pub(crate) fn sealed(&self, bytes: &[u8], key: &str, namespace: &str) -> SealedText {
        let path = self.desk.path("bytes");
        fs_err::write(&path, bytes).unwrap();
        let made = Command::new("ssh-keygen")
            .args(["-q", "-Y", "sign", "-n", namespace, "-f"])
            .arg(self.desk.path(key))
            .arg(&path)
            .status();
        assert!(made.unwrap().success());
        let armour = self.desk.read("bytes.sig");
        fs_err::remove_file(self.desk.path("bytes.sig")).unwrap();
        SealedText::of(&Envelope::seal(bytes, &[&armour]).unwrap()).unwrap()
    }

    /// What was handed in at the hub for the host, once it is.
    pub(crate) fn handed_in(&self) -> QueuedEnvelope {
        let began = Instant::now();
        loop {
            let waiting = self.behind.wait(self.behind.store.envelopes_after("pve1", 0)).unwrap();
            if let Some(first) = waiting.into_iter().next() {
                return first;
            }
            assert!(began.elapsed() < PATIENCE, "it was never handed in");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A verdict of the host about what was handed in, under its own key.
    pub(crate) fn verdict(
        &self,
        handed_in: &QueuedEnvelope,
        code: &str,
        detail: &str,
    ) -> EnvelopeVerdict {
        let code = code.to_owned();
        let detail = detail.to_owned();
        let envelope = handed_in.id.parse().unwrap();
        let told = EnvelopeVerdict { envelope, code, op: None, detail, sealed: None };
        let payload = Envelope::parse(handed_in.body.as_bytes()).unwrap().payload_hash();
        let hub_id = self.behind.store.hub_id().parse().unwrap();
        let said = VerdictStatement::of(hub_id, self.host(), payload, &told);
        let sealed = self.sealed(&said.to_bytes().unwrap(), "host", "evenkeel.verdict.v1");
        EnvelopeVerdict { sealed: Some(sealed), ..told }
    }

    /// The hub keeps a verdict, whoever made it.
    pub(crate) fn tells(&self, verdict: EnvelopeVerdict) {
        let report = HostReport { verdicts: vec![verdict], ..HostReport::default() };
        self.behind.report("pve1", &self.desk.key("host"), report);
    }

    /// The hub has this among the host's items, under the name of these bytes.
    pub(crate) fn waits(&self, bytes: &[u8], item: SealedText) {
        let number = Generation(0);
        let report = HostReport {
            generation: Some(GenerationState { number, manifest: None, signer: None }),
            pending: vec![PendingReport { id: PendingItem::id(bytes), item }],
            ..HostReport::default()
        };
        self.behind.report("pve1", &self.desk.key("host"), report);
    }

    /// The host says which document is in effect.
    pub(crate) fn has_in_effect(&self, generation: u64, files: &DocumentFiles) {
        let manifest = Some(files.manifest().hash());
        let state = GenerationState { number: Generation(generation), manifest, signer: None };
        let report = HostReport { generation: Some(state), ..HostReport::default() };
        self.behind.report("pve1", &self.desk.key("host"), report);
    }
}

#[test]
fn a_hub_is_pinned_at_the_first_login_and_never_replaced() {
    let desk = Desk::new();
    let hub = HubProcess::start(&desk, "hub", "127.0.0.1:0");
    desk.run("hub account add alice --role viewer --key alice.pub --state hub").ends_with(0);
    let url = hub.url.clone();
    let unknown = desk.run(&format!("fleet login {url} --key alice")).ends_with(4);
    assert!(unknown.err.contains(&hub.fingerprint), "{unknown:?}");
    let none = desk.run("fleet hosts").ends_with(4);
    assert!(none.err.contains("fleet login"), "{none:?}");
    let wrong = hub.fingerprint.replace(':', "").chars().rev().collect::<String>();
    desk.run(&format!("fleet login {url} --key alice --fingerprint {wrong}")).ends_with(4);
    let right = format!("fleet login {url} --key alice --fingerprint {}", hub.fingerprint);
    desk.run(&right).ends_with(0);
    let mode = desk.path("home/.local/state/evenkeel/hub_logins").metadata().unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    // From now on it needs no flag, and another key than the account's is refused.
    desk.run(&format!("fleet login {url} --key alice")).ends_with(0);
    desk.run(&format!("fleet login {url} --key author")).ends_with(4);
    desk.run("fleet hosts").ends_with(0);
    // Somebody else takes the address: nothing is sent to them, and no flag talks the pin away.
    let address = url.trim_start_matches("https://").to_owned();
    drop(hub);
    let gone = desk.run("fleet hosts").ends_with(7);
    assert!(gone.err.contains("cannot be reached"), "{gone:?}");
    let other = HubProcess::start(&desk, "other", &address);
    for line in [
        "fleet hosts".to_owned(),
        format!("fleet login {url} --key alice"),
        format!("fleet login {url} --key alice --fingerprint {}", other.fingerprint),
    ] {
        let told = desk.run(&line).ends_with(4);
        assert!(told.err.contains("known_hubs"), "{line}: {told:?}");
    }
}

#[test]
fn a_document_is_checked_shown_signed_pushed_compared_and_taken_back() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    desk.write("d/web.toml", "[guest.101]\nkind = \"lxc\"\ncoress = 2\n");
    let mistake = desk.run("fleet push pve1 d --yes").ends_with(3);
    assert!(mistake.err.contains("coress") && mistake.err.contains("web.toml:3"), "{mistake:?}");
    desk.write("d/web.toml", TWO);
    let silent = desk.run("fleet push pve1 d").ends_with(64);
    assert!(silent.err.contains("--yes"), "nobody was asked: {silent:?}");
    let first = desk.run("fleet push pve1 d --yes --message begin -o json").ends_with(0).json();
    assert_eq!((&first["generation"], &first["pushed"]), (&json!(1), &json!(true)));
    assert_eq!(
        desk.run("fleet push pve1 d --yes -o json").ends_with(0).json()["pushed"],
        json!(false)
    );
    desk.write("d/web.toml", &TWO.replace("cores = 2", "cores = 4"));
    let diff = desk.run("fleet diff pve1 d").ends_with(0);
    assert!(diff.out.contains("~ lxc/101 web\n    cores: 2 -> 4  # web.toml:4\n"), "{diff:?}");
    let unpinned = desk.run("fleet push pve1 d --key author --yes").ends_with(4);
    assert!(unpinned.err.contains("not pinned"), "the hub's word is no pin: {unpinned:?}");
    fleet.pin_host();
    fleet.has_in_effect(1, &files(TWO));
    let signed = desk.run("fleet push pve1 d --key author --yes").ends_with(0);
    assert!(
        signed.err.contains("cores: 2 -> 4")
            && signed.err.contains("generation  2")
            && signed.err.contains("in place of generation 1 (")
            && signed.err.contains("verified"),
        "{signed:?}"
    );
    fleet.has_in_effect(2, &files(&TWO.replace("cores = 2", "cores = 4")));
    let history = desk.run("fleet history pve1 -o json").ends_with(0).json();
    let author = desk.key("author").fingerprint().to_string();
    assert_eq!(history["generations"][0]["author"], json!(author));
    assert_eq!(history["generations"][1]["message"], "begin");
    desk.run("fleet rollback pve1 1 --key author --yes").ends_with(0);
    let back = desk.run("fleet diff pve1 -o json").ends_with(0).json();
    assert_eq!((&back["from"], &back["to"]), (&json!(2), &json!(3)));
    assert_eq!(back["difference"][0]["keys"][0]["after"], "2");
    desk.run("fleet pull pve1 --out pulled").ends_with(0);
    assert_eq!(desk.read("pulled/web.toml"), TWO);
    desk.run("fleet pull pve1 --out pulled").ends_with(1);
    let audit = desk.run("fleet audit").ends_with(0).out;
    assert_eq!(audit.matches("alice  document.push  pve1").count(), 3, "{audit}");
    desk.run("fleet history nowhere").ends_with(5);
}

/// A document of one file.
pub(crate) fn files(text: &str) -> DocumentFiles {
    DocumentFiles::new([("web.toml".to_owned(), text.to_owned())]).unwrap()
}

#[test]
fn a_key_the_hub_made_up_for_a_host_is_not_signed_for() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    let line = format!("pve1 {}\n", desk.key("author"));
    desk.write("home/.config/evenkeel/known_hosts", &line);
    desk.write("d/web.toml", TWO);
    let told = desk.run("fleet push pve1 d --key author --yes").ends_with(4);
    assert!(told.err.contains("another key than the pinned one"), "{told:?}");
}

#[test]
fn a_draft_of_the_console_is_signed_where_the_key_is() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    let behind = &fleet.behind;
    fleet.pin_host();
    let files = vec![WireFile { name: "web.toml".to_owned(), text: TWO.to_owned() }];
    let draft = NewDraft {
        id: "drf_1".to_owned(),
        host: "pve1".to_owned(),
        base: 0,
        files,
        manifest: self::files(TWO).manifest().as_bytes().to_vec(),
        message: "by hand".to_owned(),
        made_by: "alice".to_owned(),
    };
    behind.wait(behind.store.add_draft(draft)).unwrap();
    desk.run("fleet sign pve1 drf_1 --yes").ends_with(64);
    desk.run("fleet sign pve1 drf_1 --key author --yes").ends_with(0);
    let rows: Vec<DocumentRow> =
        behind.wait(behind.store.documents_before("pve1", i64::MAX, 9)).unwrap();
    assert_eq!((rows.len(), rows[0].message.as_str()), (1, "by hand"));
    desk.run("fleet sign pve1 drf_1 --key author --yes").ends_with(5);
}

#[test]
fn an_item_is_taken_from_the_hub_signed_and_handed_in_and_the_hosts_verdict_is_told() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    fleet.pin_host();
    let bytes = fleet.item().to_bytes().unwrap();
    let id = PendingItem::id(&bytes);
    fleet.waits(&bytes, fleet.sealed(&bytes, "host", "evenkeel.pending.v1"));
    let listed = desk.run("fleet pending").ends_with(0);
    let short = &id.to_string()[..16];
    assert!(listed.out.contains(short) && listed.out.contains("destroy"), "{listed:?}");
    desk.run(&format!("fleet pending {short} --out item.json")).ends_with(0);
    let shown = desk.run(&format!("fleet pending {short}")).ends_with(0);
    assert!(shown.out.contains("qemu/101"), "{shown:?}");
    let sign = format!("sign {short} --hub --key alice --out approval.json --yes");
    let signed = desk.run(&sign).ends_with(0);
    assert!(signed.err.contains("The host pve1 says"), "{signed:?}");
    desk.run("sign item.json --key alice --out same.json --yes").ends_with(0);
    let line = "fleet submit approval.json --wait 120 -o json";
    let child = desk.command(line).stdout(std::process::Stdio::piped()).spawn().unwrap();
    fleet.tells(fleet.verdict(&fleet.handed_in(), "unknown_signer", "nobody here knows this key"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["envelope"]["verdict"]["code"], "unknown_signer");
    assert!(desk.run("fleet status pve1").ends_with(0).out.contains("1 item"));
}

#[test]
fn z12_all_logins_end_by_oneself_by_an_admin_and_on_the_server() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    let file = "home/.local/state/evenkeel/hub_logins";
    let hub = "hub account";
    for end in ["fleet logout --all", "fleet logout --account alice", "hub account logout alice"] {
        fleet.login();
        assert!(desk.run("fleet logins").ends_with(0).out.contains("last used"));
        let tokens = desk.read(file);
        let line = if end.starts_with(hub) { format!("{end} --state hub") } else { end.to_owned() };
        let told = desk.run(&line).ends_with(0);
        assert!(told.out.contains("logins"), "{told:?}");
        desk.write(file, &tokens);
        fs_err::set_permissions(desk.path(file), std::fs::Permissions::from_mode(0o600)).unwrap();
        desk.run("fleet hosts").ends_with(4);
    }
    let told = desk.run("hub account list --state hub").ends_with(0);
    assert!(told.out.contains("alice  admin of *  last used 20"), "{told:?}");
    let gone = desk.run("hub account remove alice --state hub").ends_with(1);
    assert!(gone.err.contains("last admin"), "{gone:?}");
}

#[test]
fn the_console_gets_a_link_and_a_logout_ends_everything() {
    let fleet = Fleet::new();
    let desk = &fleet.desk;
    let told = desk.run("fleet console").ends_with(64);
    assert!(told.err.contains("which browser") && told.err.contains("/console"), "{told:?}");
    desk.run("fleet console --browser nonsense").ends_with(3);
    let link = format!("{}/console#evko_", fleet.hub.url);
    for line in ["fleet console --browser 4F7K-q2mx", "fleet console"] {
        let told = desk.run(line).ends_with(0);
        assert!(told.out.starts_with(&link) && told.err.contains("4f7k-q2mx"), "{told:?}");
    }
    let logins = desk.run("fleet logins -o json").ends_with(0).json();
    assert_eq!(logins["logins"].as_array().map(Vec::len), Some(1), "{logins}");
    let tokens = desk.read("home/.local/state/evenkeel/hub_logins");
    desk.run("fleet logout").ends_with(0);
    desk.run("fleet hosts").ends_with(4);
    // The token is over at the hub too, not only forgotten here.
    desk.write("home/.local/state/evenkeel/hub_logins", &tokens);
    let file = desk.path("home/.local/state/evenkeel/hub_logins");
    fs_err::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let told = desk.run("fleet hosts").ends_with(4);
    assert!(told.err.contains("log in again"), "{told:?}");
}
