//! A host as the hub meets it: a key, a credential, and the requests an agent sends, signed as an agent signs them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use evenkeel_core::fleet::{
    EnrolRequest, EnrolStatement, HeadStatement, HostReport, JournalHead, PayloadHash,
    ReportStatement, SealedText,
};
use evenkeel_core::sign::wire::put_string;
use evenkeel_core::sign::{
    Envelope, HostBinding, KeyType, Namespace, PublicKey, TrustVersion, armour, assemble,
    signed_bytes,
};
use serde_json::Value;

use super::TestBed;
use evenkeel_hub::secret_text::{SecretKind, SecretText, random_hex};
use evenkeel_testkit::patience::PATIENCE;

/// A host.
#[derive(Clone)]
pub(crate) struct TestHost {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) hub_id: String,
    pub(crate) credential: String,
    pub(crate) instance: String,
    secret: SigningKey,
    pub(crate) client: reqwest::Client,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct HubReply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl HubReply {
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }

    async fn try_of(response: reqwest::Response) -> Option<Self> {
        let status = response.status().as_u16();
        let bytes = response.bytes().await.ok()?;
        Some(Self { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }

    async fn of(response: reqwest::Response) -> Self {
        let status = response.status().as_u16();
        let bytes = response.bytes().await.unwrap();
        Self { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
    }
}

impl TestHost {
    /// A host that has not enrolled.
    pub(crate) fn new(bed: &TestBed, id: &str) -> Self {
        let client = reqwest::Client::new();
        Self { client, ..Self::alone(id, bed.url(), bed.store().hub_id()) }
    }

    /// A host of a hub that runs elsewhere.
    pub(crate) fn alone(id: &str, url: &str, hub_id: &str) -> Self {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).unwrap();
        Self {
            id: id.to_owned(),
            url: url.to_owned(),
            hub_id: hub_id.to_owned(),
            credential: String::new(),
            instance: random_hex(8),
            secret: SigningKey::from_bytes(&seed),
            // A hub that was killed hangs up; this is for one that hangs.
            client: reqwest::Client::builder().timeout(PATIENCE).build().unwrap(),
        }
    }

    /// A host that has.
    pub(crate) async fn enrolled(bed: &TestBed, id: &str) -> Self {
        let mut host = Self::new(bed, id);
        let token = bed.token(id, false).await;
        let reply = host.enrol(&token).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        host
    }

    pub(crate) fn key(&self) -> PublicKey {
        let mut blob = Vec::new();
        put_string(&mut blob, KeyType::Ed25519.as_str().as_bytes());
        put_string(&mut blob, self.secret.verifying_key().as_bytes());
        PublicKey::from_blob(&blob).unwrap()
    }

    pub(crate) fn binding(&self) -> HostBinding {
        HostBinding { id: self.id.parse().unwrap(), key: self.key().fingerprint() }
    }

    fn armoured(&self, namespace: Namespace, bytes: &[u8]) -> String {
        let made = self.secret.sign(&signed_bytes(namespace, bytes));
        let mut signature = Vec::new();
        put_string(&mut signature, KeyType::Ed25519.as_str().as_bytes());
        put_string(&mut signature, &made.to_bytes());
        assemble(&self.key(), namespace, &signature).unwrap()
    }

    pub(crate) fn sealed(&self, namespace: Namespace, bytes: &[u8]) -> SealedText {
        let envelope = Envelope::seal(bytes, &[&self.armoured(namespace, bytes)]).unwrap();
        SealedText::of(envelope.trim_end()).unwrap()
    }

    /// The request with which it enrols, for an address.
    pub(crate) fn enrolment(&self, token: &str, hub_url: &str) -> EnrolRequest {
        let statement = EnrolStatement {
            token: PayloadHash::of(token.as_bytes()),
            host: self.binding(),
            hub_url: hub_url.to_owned(),
        };
        let enrolment = self.sealed(Namespace::Enrol, &statement.to_bytes().unwrap());
        EnrolRequest { token: token.to_owned(), host_key: self.key().to_string(), enrolment }
    }

    pub(crate) async fn enrol(&mut self, token: &str) -> HubReply {
        let request = self.enrolment(token, &self.url);
        let reply = self.post("/v1/agent/enrol", serde_json::to_vec(&request).unwrap()).await;
        if reply.status == 200 {
            reply.body["credential"].as_str().unwrap().clone_into(&mut self.credential);
            assert_eq!(reply.body["hub_id"].as_str().unwrap(), self.hub_id);
        }
        reply
    }

    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> HubReply {
        HubReply::of(
            self.client.post(format!("{}{path}", self.url)).body(body).send().await.unwrap(),
        )
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> HubReply {
        let request = self.client.get(format!("{}{path}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.credential));
        HubReply::of(request.send().await.unwrap()).await
    }

    /// The same of a hub that may be dying: none if it did not answer whole.
    pub(crate) async fn try_post(
        &self,
        path: &str,
        token: &str,
        body: Vec<u8>,
    ) -> Option<HubReply> {
        let request = self.client.post(format!("{}{path}", self.url)).body(body);
        let request = match token {
            "" => request,
            token => request.header("authorization", format!("Bearer {token}")),
        };
        HubReply::try_of(request.send().await.ok()?).await
    }

    pub(crate) async fn try_poll(
        &self,
        generation: i64,
        cursor: i64,
        wait_s: u32,
    ) -> Option<HubReply> {
        let query = format!("generation={generation}&cursor={cursor}&wait={wait_s}");
        let request = self.client.get(format!("{}/v1/agent/poll?{query}", self.url));
        let request = request.header("authorization", format!("Bearer {}", self.credential));
        HubReply::try_of(request.send().await.ok()?).await
    }

    pub(crate) async fn try_report(
        &self,
        seq: u64,
        base: u64,
        report: &HostReport,
    ) -> Option<HubReply> {
        let body = report.to_bytes();
        let request = self.report_request(&self.statement(seq, base, &body), body);
        HubReply::try_of(request.send().await.ok()?).await
    }

    pub(crate) async fn poll(&self, generation: i64, cursor: i64, wait_s: u32) -> HubReply {
        self.get(&format!("/v1/agent/poll?generation={generation}&cursor={cursor}&wait={wait_s}"))
            .await
    }

    pub(crate) fn head(&self, epoch: u64, seq: u64, sum: u8) -> SealedText {
        let head =
            JournalHead { epoch, seq, sum: PayloadHash([sum; 32]), trust_version: TrustVersion(1) };
        let statement =
            HeadStatement { hub_id: self.hub_id.parse().unwrap(), host: self.binding(), head };
        self.sealed(Namespace::Head, &statement.to_bytes().unwrap())
    }

    pub(crate) fn statement(&self, seq: u64, base: u64, body: &[u8]) -> ReportStatement {
        ReportStatement {
            hub_id: self.hub_id.parse().unwrap(),
            host: self.binding(),
            instance: self.instance.parse().unwrap(),
            seq,
            base,
            sha256: PayloadHash::of(body),
        }
    }

    pub(crate) async fn report(&self, seq: u64, base: u64, report: &HostReport) -> HubReply {
        let body = report.to_bytes();
        self.send_report(&self.statement(seq, base, &body), body).await
    }

    /// Sends a statement with a body that need not fit it.
    pub(crate) async fn send_report(&self, statement: &ReportStatement, body: Vec<u8>) -> HubReply {
        HubReply::of(self.report_request(statement, body).send().await.unwrap()).await
    }

    fn report_request(
        &self,
        statement: &ReportStatement,
        body: Vec<u8>,
    ) -> reqwest::RequestBuilder {
        let bytes = statement.to_bytes().unwrap();
        let blob = armour::decode(&self.armoured(Namespace::Report, &bytes)).unwrap();
        let request = self.client.post(format!("{}/v1/agent/reports", self.url)).body(body);
        request
            .header("authorization", format!("Bearer {}", self.credential))
            .header("evenkeel-statement", STANDARD.encode(&bytes))
            .header("evenkeel-signature", STANDARD.encode(&blob))
    }
}

impl TestBed {
    /// A token for a host.
    pub(crate) async fn token(&self, host: &str, replaces: bool) -> String {
        let token = SecretText::draw(SecretKind::EnrolToken);
        self.store().make_enrol_token(token.hash(), host, replaces, "alice").await.unwrap();
        token.reveal().to_owned()
    }

    /// What the audit says of a subject, newest first.
    pub(crate) async fn audited(&self, subject: &str) -> Vec<String> {
        let page = self.store().audit_page(Some(subject), i64::MAX, 50).await.unwrap();
        page.into_iter().map(|entry| entry.act).collect()
    }
}
