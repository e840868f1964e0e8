//! What a host and a person ask of a hub over HTTP, one act after the other, and what they can see of it afterwards.
//!
//! The hub may die at any moment: an act is acknowledged when its whole answer has arrived, and whoever got none asks again
//! with the same bytes. What is seen is read from the hub alone, as anybody could.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use evenkeel_core::fleet::{
    AcknowledgeStatement, EnrolStatement, GuestReport, HeadStatement, HostReport, JournalHead,
    ReportStatement, SealedText, ToldOperation,
};
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::wire::put_string;
use evenkeel_core::sign::{
    Envelope, HostBinding, Namespace, PayloadHash, PublicKey, TrustVersion, Window, armour,
    assemble, signed_bytes,
};
use evenkeel_hub::store::HubTime;
use serde_json::{Value, json};

/// What everybody calls the hub, wherever it listens.
pub(crate) const PUBLIC_URL: &str = "http://127.0.0.1:1";
/// What is done for each host, in this order.
pub(crate) const ACTS: [&str; 5] = ["token", "enrol", "push", "report", "submit"];
/// How long a hub may take to answer.
const ANSWER_MAX: Duration = Duration::from_mins(1);

/// An answer that arrived whole.
#[derive(Debug)]
pub(crate) struct HubAnswer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// Asks once, on a connection of its own; none if no whole answer came.
pub(crate) fn ask(
    address: &str,
    (method, path): (&str, &str),
    headers: &[(&str, String)],
    body: &[u8],
) -> Option<HubAnswer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ANSWER_MAX)).ok()?;
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: hub\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.extend([name, ": ", value.as_str(), "\r\n"]);
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).ok()?;
    let text = String::from_utf8(said).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    if length.is_some_and(|length| length != body.len()) {
        return None;
    }
    Some(HubAnswer { status, body: serde_json::from_str(body).unwrap_or(Value::Null) })
}

/// A host, and the person who does things for it.
pub(crate) struct ActingHost {
    pub(crate) id: String,
    hub_id: String,
    /// The person's token.
    api_token: String,
    secret: SigningKey,
    enrol_token: String,
    credential: String,
    /// The same bytes each time it is handed in.
    envelope: Value,
}

impl ActingHost {
    pub(crate) fn new(number: u8, hub_id: &str, api_token: &str) -> Self {
        let mut host = Self {
            id: format!("pve{number}"),
            hub_id: hub_id.to_owned(),
            api_token: api_token.to_owned(),
            secret: SigningKey::from_bytes(&[100 + number; 32]),
            enrol_token: String::new(),
            credential: String::new(),
            envelope: Value::Null,
        };
        host.envelope = host.acknowledgement();
        host
    }

    /// Does one act; none if the hub did not answer it.
    pub(crate) fn perform(&mut self, address: &str, act: &str) -> Option<()> {
        match act {
            "token" => self.make_token(address),
            "enrol" => self.enrol(address),
            "push" => self.push(address),
            "report" => self.report(address),
            "submit" => self.submit(address),
            other => panic!("nobody does {other}"),
        }
    }

    fn as_person(
        &self,
        address: &str,
        method_and_path: (&str, &str),
        more: &[(&str, String)],
        body: &[u8],
    ) -> Option<HubAnswer> {
        let mut headers = vec![("authorization", format!("Bearer {}", self.api_token))];
        headers.extend(more.iter().cloned());
        ask(address, method_and_path, &headers, body)
    }

    fn make_token(&mut self, address: &str) -> Option<()> {
        let body = json!({"host": self.id, "replace": true}).to_string();
        let answer = self.as_person(address, ("POST", "/v1/enrol-tokens"), &[], body.as_bytes())?;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["token"].as_str().unwrap().clone_into(&mut self.enrol_token);
        Some(())
    }

    fn enrol(&mut self, address: &str) -> Option<()> {
        let statement = EnrolStatement {
            token: PayloadHash::of(self.enrol_token.as_bytes()),
            host: self.binding(),
            hub_url: PUBLIC_URL.to_owned(),
        };
        let enrolment = self.sealed(Namespace::Enrol, &statement.to_bytes().unwrap());
        let key = self.key().to_string();
        let body = json!({"token": self.enrol_token, "host_key": key, "enrolment": enrolment});
        let body = body.to_string();
        let answer = ask(address, ("POST", "/v1/agent/enrol"), &[], body.as_bytes())?;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["credential"].as_str().unwrap().clone_into(&mut self.credential);
        Some(())
    }

    fn push(&self, address: &str) -> Option<()> {
        let files = json!([{"name": "web.toml", "text": self.text()}]);
        let body = json!({"files": files, "message": "because"}).to_string();
        let path = format!("/v1/hosts/{}/documents", self.id);
        let seen = [("if-match", "\"0\"".to_owned())];
        let answer = self.as_person(address, ("POST", &path), &seen, body.as_bytes())?;
        // Somebody pushed before: we ourselves, and the answer was lost.
        assert!(matches!(answer.status, 200 | 412), "{answer:?}");
        Some(())
    }

    fn report(&self, address: &str) -> Option<()> {
        let head = JournalHead {
            epoch: 1,
            seq: 5,
            sum: PayloadHash::of(b"sum"),
            trust_version: TrustVersion(1),
        };
        let hub_id = self.hub_id.parse().unwrap();
        let head = HeadStatement { hub_id, host: self.binding(), head };
        let head = self.sealed(Namespace::Head, &head.to_bytes().unwrap());
        let guest = GuestReport { guest: "lxc/101".to_owned(), ..GuestReport::default() };
        let op = ToldOperation { op: "op_1".to_owned(), ..ToldOperation::default() };
        let report = HostReport {
            guests: vec![guest],
            ops: vec![op],
            head: Some(serde_json::from_value::<SealedText>(head).unwrap()),
            ..HostReport::default()
        };
        let body = report.to_bytes();
        let statement = ReportStatement {
            hub_id: self.hub_id.parse().unwrap(),
            host: self.binding(),
            instance: "0123456789abcdef".parse().unwrap(),
            seq: 1,
            base: 0,
            sha256: PayloadHash::of(&body),
        };
        let bytes = statement.to_bytes().unwrap();
        let signature = armour::decode(&self.armoured(Namespace::Report, &bytes)).unwrap();
        let headers = [
            ("authorization", format!("Bearer {}", self.credential)),
            ("evenkeel-statement", STANDARD.encode(&bytes)),
            ("evenkeel-signature", STANDARD.encode(&signature)),
        ];
        let answer = ask(address, ("POST", "/v1/agent/reports"), &headers, &body)?;
        assert_eq!((answer.status, &answer.body["seq"]), (200, &json!(1)), "{answer:?}");
        Some(())
    }

    fn submit(&self, address: &str) -> Option<()> {
        let body = json!({"envelope": self.envelope}).to_string();
        let answer = self.as_person(address, ("POST", "/v1/envelopes"), &[], body.as_bytes())?;
        assert_eq!(answer.status, 200, "{answer:?}");
        Some(())
    }

    fn text(&self) -> String {
        format!("# of {}\n[guest.101]\nkind = \"lxc\"\ncores = 2\n", self.id)
    }

    /// For each act, what is there of it: each part 1 or 0, all the same unless it is there by half.
    pub(crate) fn seen(&self, address: &str) -> [(&'static str, Vec<usize>); 5] {
        let get = |path: &str| {
            let answer = self.as_person(address, ("GET", path), &[], b"");
            answer.unwrap_or_else(|| panic!("no answer to {path}"))
        };
        let audit = get("/v1/audit?limit=200").body;
        let audit = audit["items"].as_array().unwrap();
        let audited = |act: &str| {
            let is_it = |line: &&Value| line["act"] == act && line["subject"] == self.id.as_str();
            audit.iter().filter(is_it).count()
        };
        let listed = |what: &str| {
            let list = get(&format!("/v1/hosts/{}/{what}", self.id)).body;
            list["items"].as_array().map_or(0, Vec::len)
        };
        let host = get(&format!("/v1/hosts/{}", self.id));
        let is_there = usize::from(host.status == 200);
        let number = |name: &str| {
            usize::try_from(host.body[name].as_u64().unwrap_or(0)).unwrap_or(usize::MAX)
        };
        let document = get(&format!("/v1/hosts/{}/documents/newest", self.id)).body;
        let is_whole = document["files"][0]["text"] == self.text().as_str();
        let polled = self.polled(address);
        [
            // A token that nobody was told of is good for nothing, so that a second one is made.
            ("token", vec![audited("enrol_token.make").min(1)]),
            // Who was not told of the credential comes again, which is another line.
            ("enrol", vec![is_there, audited("host.enrol")]),
            (
                "push",
                vec![
                    listed("documents"),
                    number("wanted"),
                    usize::from(is_whole),
                    audited("document.push"),
                    polled.as_ref().map_or(number("wanted"), |polled| polled.0),
                ],
            ),
            (
                "report",
                vec![
                    listed("guests"),
                    listed("ops"),
                    usize::from(host.body["reported_at"].as_str().is_some_and(|at| !at.is_empty())),
                    self.has_anchor(address).unwrap_or_else(|| listed("guests")),
                ],
            ),
            (
                "submit",
                vec![
                    listed("envelopes"),
                    audited("envelope.submit"),
                    polled.map_or(listed("envelopes"), |polled| polled.1),
                ],
            ),
        ]
    }

    fn as_host(&self, address: &str, path: &str) -> Option<HubAnswer> {
        let headers = [("authorization", format!("Bearer {}", self.credential))];
        let answer = ask(address, ("GET", path), &headers, b"");
        let answer = answer.unwrap_or_else(|| panic!("no answer to {path}"));
        // Before it enrolled, or when the answer with its credential was lost.
        (answer.status != 401).then_some(answer)
    }

    /// What a poll of the host brings: the generation, and how many envelopes. None without a credential.
    fn polled(&self, address: &str) -> Option<(usize, usize)> {
        let answer = self.as_host(address, "/v1/agent/poll?generation=0&cursor=0&wait=0")?;
        let generation = answer.body["generation"].as_u64().unwrap_or(0);
        let envelopes = answer.body["envelopes"].as_array().map_or(0, Vec::len);
        Some((usize::try_from(generation).unwrap(), envelopes))
    }

    fn has_anchor(&self, address: &str) -> Option<usize> {
        let answer = self.as_host(address, "/v1/agent/anchor")?;
        Some(usize::from(answer.body["head"].is_object()))
    }

    fn key(&self) -> PublicKey {
        let mut blob = Vec::new();
        put_string(&mut blob, b"ssh-ed25519");
        put_string(&mut blob, self.secret.verifying_key().as_bytes());
        PublicKey::from_blob(&blob).unwrap()
    }

    fn binding(&self) -> HostBinding {
        HostBinding { id: self.id.parse().unwrap(), key: self.key().fingerprint() }
    }

    fn armoured(&self, namespace: Namespace, bytes: &[u8]) -> String {
        let made = self.secret.sign(&signed_bytes(namespace, bytes));
        let mut signature = Vec::new();
        put_string(&mut signature, b"ssh-ed25519");
        put_string(&mut signature, &made.to_bytes());
        assemble(&self.key(), namespace, &signature).unwrap()
    }

    fn sealed(&self, namespace: Namespace, bytes: &[u8]) -> Value {
        let envelope = Envelope::seal(bytes, &[&self.armoured(namespace, bytes)]).unwrap();
        serde_json::from_str(&envelope).unwrap()
    }

    fn acknowledgement(&self) -> Value {
        let now = UnixSeconds((HubTime::now().0 / 1000).unsigned_abs());
        let sum = PayloadHash::of(b"sum");
        let head = |seq| JournalHead { epoch: 1, seq, sum, trust_version: TrustVersion(1) };
        let statement = AcknowledgeStatement {
            host: self.binding(),
            hub_id: self.hub_id.parse().unwrap(),
            anchored: head(9),
            found: head(7),
            nonce: "0123456789abcdef0123456789abcdef".parse().unwrap(),
            window: Window::new(now.minus(60), now.plus(3600)).unwrap(),
            trust_version: TrustVersion(1),
            reason: String::new(),
        };
        self.sealed(Namespace::Acknowledge, &statement.to_bytes().unwrap())
    }
}
