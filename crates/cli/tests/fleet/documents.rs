//! A thief with the hub's database and its answers in hand: what a person is shown, and what they are made to sign.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Instant;

use evenkeel_core::fleet::{
    DesiredStatement, DocumentBase, DocumentFiles, Generation, GenerationState, HostReport,
    RefusedGeneration, SealedText, SignedBase, WireFile,
};
use evenkeel_core::sign::Namespace;
use evenkeel_hub::store::{NewDocument, StoredDocument};
use serde_json::{Value, json};

use super::desk::{Desk, PATIENCE, Told};
use super::verbs::{Fleet, TWO, files};
use super::whole::Running;

/// What a thief would like a guest to have.
const STOLEN: &str = "[guest.101]\nkind = \"qemu\"\nname = \"web\"\ncores = 2\n\
                      sshkeys = [\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA thief\"]\n";

const WHOLE: &str = "the whole document is shown, not a difference";

impl Fleet {
    /// A person's document, signed and in effect as generation 1.
    fn with_a_signed_document() -> Self {
        let fleet = Self::new();
        fleet.pin_host();
        fleet.desk.write("d/web.toml", TWO);
        fleet.desk.run("fleet push pve1 d --key author --yes").ends_with(0);
        fleet.has_in_effect(1, &files(TWO));
        fleet
    }

    /// A row that a thief writes: texts under whatever manifest, signed or not.
    fn keeps(&self, seen: i64, text: &str, manifest: &DocumentFiles, author: Option<String>) {
        let document = NewDocument {
            host: "pve1".to_owned(),
            files: vec![WireFile { name: "web.toml".to_owned(), text: text.to_owned() }],
            manifest: manifest.manifest().as_bytes().to_vec(),
            generation: None,
            author_key: author.as_ref().map(|_| "SHA256:stolen".to_owned()).unwrap_or_default(),
            author,
            seen,
            message: String::new(),
            pushed_by: "thief".to_owned(),
        };
        self.behind.wait(self.behind.store.push(document)).unwrap();
    }

    fn kept(&self, generation: i64) -> StoredDocument {
        let found = self.behind.wait(self.behind.store.document("pve1", generation)).unwrap();
        found.unwrap()
    }

    /// What an author signed of a generation.
    fn signed(&self, generation: i64) -> DesiredStatement {
        let sealed: SealedText =
            serde_json::from_str(&self.kept(generation).author.unwrap()).unwrap();
        let envelope = sealed.envelope().unwrap();
        DesiredStatement::parse(envelope.payload(), Namespace::Desired).unwrap()
    }

    /// Pushes and waits; the host says this once the generation is at the hub. Code, answer and what was told.
    fn pushed_and(&self, generation: i64, report: HostReport) -> (i32, Value, String) {
        let mut push = self.desk.command("fleet push pve1 d --key author --yes --wait 60 -o json");
        let waiting = push.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let until = Instant::now() + PATIENCE;
        while self.behind.wait(self.behind.store.document("pve1", generation)).unwrap().is_none() {
            assert!(Instant::now() < until, "it was never pushed");
            std::thread::yield_now();
        }
        self.behind.report("pve1", &self.desk.key("host"), report);
        let output = waiting.wait_with_output().unwrap();
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code().unwrap(), answer, String::from_utf8(output.stderr).unwrap())
    }

    #[track_caller]
    fn refuses(&self, line: &str, why: &str) -> Told {
        let told = self.desk.run(line).ends_with(4);
        assert!(told.err.contains(why) && !told.err.contains("thief"), "{line}: {told:?}");
        assert!(!told.out.contains("thief"), "{line}: {told:?}");
        told
    }
}

#[test]
fn z01_texts_that_the_hub_rewrote_are_neither_shown_nor_signed() {
    let fleet = Fleet::with_a_signed_document();
    // The newest generation has the manifest that was signed, and other texts; the host is said to have it in effect.
    let author = fleet.kept(1).author;
    let four = TWO.replace("cores = 2", "cores = 4");
    fleet.keeps(1, STOLEN, &files(&four), author);
    fleet.has_in_effect(2, &files(&four));
    fleet.desk.write("d/web.toml", &four);
    for line in [
        "fleet push pve1 d --key author --yes",
        "fleet rollback pve1 2 --key author --yes",
        "fleet diff pve1",
        "fleet diff pve1 d",
        "fleet pull pve1 --out pulled",
    ] {
        fleet.refuses(line, "are not those of its manifest");
    }
    assert!(!fleet.desk.path("pulled").join("web.toml").exists());
    assert_eq!(fleet.kept(2).row.generation, 2, "nothing was handed in after it");
}

#[test]
fn z01_a_statement_of_another_document_or_a_broken_one_is_neither_shown_nor_signed() {
    let fleet = Fleet::with_a_signed_document();
    // Texts and manifest fit each other; the statement beside them is that of another generation.
    let author = fleet.kept(1).author;
    fleet.keeps(1, STOLEN, &files(STOLEN), author.clone());
    fleet.has_in_effect(2, &files(STOLEN));
    fleet.refuses("fleet diff pve1 d", "was signed as another document, number, host or hub");
    fleet.refuses("fleet push pve1 d --key author --yes", "was signed as another document");
    // And one whose signature is over other bytes.
    let broken = author.map(|sealed| {
        let mut sealed: Value = serde_json::from_str(&sealed).unwrap();
        sealed["payload"] = json!("eyJmb3JtYXQiOiJldmVua2VlbC9kZXNpcmVkL3YyIn0=");
        sealed.to_string()
    });
    fleet.keeps(2, STOLEN, &files(STOLEN), broken);
    fleet.has_in_effect(3, &files(STOLEN));
    fleet.refuses("fleet pull pve1 --out pulled", "does not hold");
}

#[test]
fn z01_over_a_base_that_nobody_known_signed_everything_is_shown() {
    let fleet = Fleet::with_a_signed_document();
    let desk = &fleet.desk;
    // The thief's own document, consistent in itself, is said to be in effect; the draft changes one line of it.
    fleet.keeps(1, STOLEN, &files(STOLEN), None);
    fleet.has_in_effect(2, &files(STOLEN));
    desk.write("d/web.toml", &STOLEN.replace("cores = 2", "cores = 4"));
    let told = desk.run("fleet push pve1 d --key author --yes").ends_with(0);
    assert!(
        told.err.contains(WHOLE) && told.err.contains("nobody signed generation 2"),
        "{told:?}"
    );
    assert!(told.err.contains("AAAAC3NzaC1lZDI1NTE5AAAAIA thief"), "the key is seen: {told:?}");
    // The host has another document in effect, and so refuses what is signed over this one.
    let over =
        DocumentBase { generation: Generation(2), manifest: files(STOLEN).manifest().hash() };
    assert_eq!(fleet.signed(3).base, SignedBase::Over(over));
    // A comparison with it shows everything too, and says so in JSON.
    let told = desk.run("fleet diff pve1 --from 2 --to 3 -o json").ends_with(0);
    assert_eq!(told.json()["from_verified"], json!(false));
    assert_eq!(told.json()["difference"][0]["change"], "added");
    let pulled = desk.run("fleet pull pve1 --generation 2 --out pulled").ends_with(0);
    assert!(pulled.err.contains("is not verified: nobody signed generation 2"), "{pulled:?}");
}

#[test]
fn z01_another_authors_document_is_verified_once_a_person_knows_the_key() {
    let fleet = Fleet::with_a_signed_document();
    let desk = &fleet.desk;
    // A second person has neither the first one's record nor key.
    fs_err::remove_dir_all(desk.path("home/.local/state/evenkeel/hub_documents")).unwrap();
    desk.write("d/web.toml", &TWO.replace("cores = 2", "cores = 4"));
    let before = desk.run("fleet diff pve1 d").ends_with(0);
    assert!(before.err.contains(WHOLE) && before.err.contains("is not known here"), "{before:?}");
    assert!(before.out.contains("+ lxc/101"), "{before:?}");
    let line = format!("pve1 {}\n", desk.key("author"));
    desk.write("home/.config/evenkeel/known_authors", &line);
    let after = desk.run("fleet diff pve1 d").ends_with(0);
    assert!(after.out.contains("cores: 2 -> 4") && after.err.is_empty(), "{after:?}");
}

#[test]
fn z04_a_number_that_was_signed_here_is_never_signed_again() {
    let fleet = Fleet::with_a_signed_document();
    let desk = &fleet.desk;
    let behind = &fleet.behind;
    // The hub forgets the host and what was pushed to it, and asks for number 1 once more.
    behind.wait(behind.store.remove_host("pve1", "thief")).unwrap();
    behind.enrol("pve1", &desk.key("host"));
    desk.write("d/web.toml", &TWO.replace("cores = 2", "cores = 4"));
    let told = desk.run("fleet push pve1 d --key author --yes").ends_with(0);
    assert!(told.err.contains("you signed generation 1 for pve1 before"), "{told:?}");
    assert_eq!(fleet.signed(2).generation, Generation(2));
}

/// A hub whose answers about one host are those of another: a pipe in front of it that bends the path.
fn bent_hub(real: &str) -> String {
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap().to_string();
    let real = real.to_owned();
    std::thread::spawn(move || {
        for client in front.incoming() {
            let mut client = client.unwrap();
            let mut hub = TcpStream::connect(&real).unwrap();
            let mut back = client.try_clone().unwrap();
            let mut answers = hub.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            std::thread::spawn(move || {
                let mut bytes = vec![0; 65_536];
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..count]);
                    let bent = text.replace("/v1/hosts/pve1", "/v1/hosts/pve2");
                    if hub.write_all(bent.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn z03_the_signed_host_is_the_argument_and_another_answer_is_refused() {
    let desk = Desk::new();
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let front = bent_hub(&own);
    let line = format!(
        "hub --listen {own} --state hub --plain-http --public-url http://{front} -o json --log error"
    );
    // It ends with the test, however that ends.
    let mut hub = Running(desk.command(&line).stdout(Stdio::piped()).spawn().unwrap());
    let mut first = [0_u8; 1];
    hub.0.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let behind = super::desk::Behind::open(&desk.path("hub"));
    for (host, key) in [("pve1", "host"), ("pve2", "alice")] {
        behind.enrol(host, &desk.key(key));
    }
    let pins = format!("pve1 {}\npve2 {}\n", desk.key("host"), desk.key("alice"));
    desk.write("home/.config/evenkeel/known_hosts", &pins);
    desk.run("hub account add alice --role admin --key alice.pub --state hub").ends_with(0);
    desk.run(&format!("fleet login http://{front} --key alice")).ends_with(0);
    desk.write("d/web.toml", TWO);
    for line in [
        "fleet push pve1 d --key author --yes",
        "fleet push pve1 d --yes",
        "fleet diff pve1 d",
        "fleet status pve1",
    ] {
        let told = desk.run(line).ends_with(4);
        assert!(told.err.contains("answered about another one"), "{line}: {told:?}");
    }
    for host in ["pve1", "pve2"] {
        let rows = behind.wait(behind.store.documents_before(host, i64::MAX, 9)).unwrap();
        assert!(rows.is_empty(), "{host}");
    }
}

#[test]
fn content_that_its_host_refused_is_signed_again_as_a_new_generation_and_the_verdict_is_told() {
    let fleet = Fleet::with_a_signed_document();
    let (desk, key) = (&fleet.desk, fleet.desk.key("host"));
    let push = "fleet push pve1 d --key author --yes -o json";
    assert_eq!(desk.run(push).ends_with(0).json()["pushed"], json!(false), "it is in effect");
    let four = TWO.replace("cores = 2", "cores = 4");
    desk.write("d/web.toml", &four);
    assert_eq!(desk.run(push).ends_with(0).json()["generation"], json!(2));
    let refused = RefusedGeneration {
        generation: Generation(2),
        code: "expired".to_owned(),
        why: "its time was over".to_owned(),
        next: "an author signs it".to_owned(),
        ..RefusedGeneration::default()
    };
    fleet.behind.report(
        "pve1",
        &key,
        HostReport { refused: Some(refused), ..HostReport::default() },
    );
    let again = desk.run(push).ends_with(0).json();
    assert_eq!((&again["pushed"], &again["generation"]), (&json!(true), &json!(3)));
    assert_eq!(again["in_effect"], Value::Null, "nobody waited");
    // What the host says in the end decides the code.
    let silent = desk.run("fleet push pve1 d --key author --yes --wait 1").ends_with(7);
    assert!(silent.err.contains("has said nothing about generation 4 yet"), "{silent:?}");
    let refused = RefusedGeneration {
        generation: Generation(5),
        code: "unknown_signer".to_owned(),
        why: "the key is nobody's".to_owned(),
        ..RefusedGeneration::default()
    };
    let report = HostReport { refused: Some(refused), ..HostReport::default() };
    let (code, answer, err) = fleet.pushed_and(5, report);
    assert_eq!((code, &answer["in_effect"]), (4, &json!(false)), "{err}");
    assert_eq!(answer["refused"]["code"], "unknown_signer");
    assert!(err.contains("refuses generation 5 as unknown_signer: the key is nobody's"), "{err}");
    let manifest = Some(files(&four).manifest().hash());
    let state = GenerationState { number: Generation(6), manifest, signer: None };
    let report = HostReport { generation: Some(state), ..HostReport::default() };
    let (code, answer, err) = fleet.pushed_and(6, report);
    assert_eq!((code, &answer["in_effect"]), (0, &json!(true)), "{err}");
}

#[test]
fn an_unsigned_push_says_that_it_is_to_be_signed() {
    let fleet = Fleet::new();
    fleet.desk.write("d/web.toml", TWO);
    let told = fleet.desk.run("fleet push pve1 d --yes").ends_with(0);
    assert!(told.err.contains("Sign it with --key KEY"), "{told:?}");
    assert!(
        !told.err.contains("desired_signed"),
        "it advises nobody to switch signing off: {told:?}"
    );
}
