//! A hub on loopback with a fleet on it, put there as hosts would report it.

use std::net::SocketAddr;

use evenkeel_core::fleet::HostReport;
use evenkeel_core::operate::operation::UnixSeconds;
use evenkeel_core::sign::{LastBackup, Loss, Namespace, PendingItem};
use evenkeel_hub::people::browser_mark::BrowserWord;
use evenkeel_hub::secret_text::{SecretKind, SecretText};
use evenkeel_hub::server::{
    self, RunningHub, ServeLimits, ServerOptions, TlsChoice, TrustedProxies,
};
use evenkeel_hub::store::{Account, AccountKey, NewAccount, NewHost, NewReport, PersonRole};
use serde_json::{Value, json};

use super::keys::{TestKey, binding, nonce, now, window};
use evenkeel_testkit::browser::Browser;
use evenkeel_testkit::destroy_item::destroy_item;

/// The seed of the key of every host that can sign.
pub(crate) const HOST_SEED: u8 = 200;

pub(crate) struct Stage {
    pub(crate) running: RunningHub,
    directory: tempfile::TempDir,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let running = started(&directory, "127.0.0.1:0".parse().unwrap()).await;
        Self { running, directory }
    }

    /// The same hub, ended and begun anew at the same address.
    pub(crate) async fn restarted(self) -> Self {
        let Self { running, directory } = self;
        let address = running.address;
        running.stop().await;
        let running = started(&directory, address).await;
        Self { running, directory }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.running.url)
    }

    pub(crate) async fn sql(&self, query: &str) {
        use sqlx::Connection as _;
        sqlx::any::install_default_drivers();
        let file = self.directory.path().join("hub.sqlite");
        assert!(file.exists(), "{:?}", std::fs::read_dir(self.directory.path()).unwrap().count());
        let url = format!("sqlite:{}", file.display());
        let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
        sqlx::query("PRAGMA busy_timeout = 5000").execute(&mut connection).await.unwrap();
        sqlx::query(sqlx::AssertSqlSafe(query.to_owned())).execute(&mut connection).await.unwrap();
    }

    /// An account, and the link with which it comes in by this browser.
    pub(crate) async fn link(
        &self,
        browser: &Browser,
        name: &str,
        (role, scope, seed): (PersonRole, &str, u8),
    ) -> String {
        let store = self.running.hub.store();
        let key = TestKey::new(seed).account_key();
        let fingerprint = key.fingerprint.clone();
        if store.account(name).await.unwrap().is_none() {
            let account = Account { name: name.to_owned(), role, scope: scope.to_owned() };
            let made_by = "server".to_owned();
            store
                .add_account(NewAccount { account, key, made_by, first_code: None })
                .await
                .unwrap();
        }
        let token = SecretText::draw(SecretKind::ApiToken);
        store.open_token(token.hash(), name, &fingerprint, 3600).await.unwrap().unwrap();
        let code = SecretText::draw(SecretKind::OneTimeCode);
        let word = BrowserWord::read(&self.word(browser).await).unwrap();
        let kept = store.add_console_code(code.hash(), token.hash(), word.as_str(), 60);
        assert!(kept.await.unwrap());
        self.url(&format!("/console#{}", code.reveal()))
    }

    /// The word of a browser, as the hub's page shows it in it.
    async fn word(&self, browser: &Browser) -> String {
        browser.open(&self.url("/console")).await;
        // Whoever is logged in already is sent on; the page is there all the same.
        let read = "const asked = new XMLHttpRequest(); asked.open('GET', '/console', false); asked.send(); \
             return /data-browser=\"([^\"]+)\"/.exec(asked.responseText)[1]";
        let word = browser.script(read).await;
        word.as_str().unwrap().to_owned()
    }

    /// A host that is enrolled.
    pub(crate) async fn host(&self, host: &str, seed: u8) {
        let store = self.running.hub.store();
        let token = SecretText::draw(SecretKind::EnrolToken);
        store.make_enrol_token(token.hash(), host, true, "server").await.unwrap();
        let AccountKey { fingerprint, key_line } = TestKey::new(seed).account_key();
        let credential = SecretText::draw(SecretKind::Credential).hash();
        let host = host.to_owned();
        let new = NewHost {
            token: token.hash(),
            host,
            key_line,
            key_fingerprint: fingerprint,
            credential,
        };
        store.enrol(new).await.unwrap().unwrap();
    }

    /// A report, whole or not, as if the host had signed it.
    pub(crate) async fn report(&self, host: &str, seed: u8, (seq, base): (i64, i64), told: Value) {
        let report = HostReport::read(told.to_string().as_bytes()).unwrap();
        let new = NewReport {
            host: host.to_owned(),
            key_fingerprint: TestKey::new(seed).account_key().fingerprint,
            instance: "0123456789abcdef".to_owned(),
            seq,
            base,
            report,
            head: None,
        };
        self.running.hub.store().report(new).await.unwrap();
        self.running.hub.store().heard(host);
    }

    /// Thousands of hosts that need no key: rows as reports would leave them.
    pub(crate) async fn crowd(&self, count: u32) {
        let seen = jiff::Timestamp::now().as_millisecond();
        let numbers = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        );
        self.sql(&format!(
            "{numbers} INSERT INTO hosts (id, key_line, key_fingerprint, credential_hash, labels, wanted, cursor, serial, \
             instance, seq, reported, enrolled_at, last_seen, changed_at, version) \
             SELECT printf('node-%04d', i), '', 'SHA256:' || i, 'hash' || i, \
             CASE i % 3 WHEN 0 THEN '{{\"rack\":\"a1\",\"site\":\"berlin\"}}' WHEN 1 THEN '{{\"site\":\"oslo\"}}' ELSE '{{}}' END, \
             4, 0, 0, '', 0, 4, {seen} - 86400000, CASE WHEN i % 97 = 0 THEN {seen} - 900000 ELSE {seen} - i * 10 END, {seen}, 1 FROM n"
        ))
        .await;
        self.sql(&format!(
            "{numbers} INSERT INTO host_states (host, generation, refused, agent, pass, counts, last_head, host_time, reported_at) \
             SELECT printf('node-%04d', i), '{{\"number\":' || CASE WHEN i % 53 = 0 THEN 3 ELSE 4 END || '}}', '', \
             CASE WHEN i % 211 = 0 THEN '{{\"frozen\":\"by root\"}}' ELSE '{{}}' END, '', \
             CASE WHEN i % 31 = 0 THEN '{{\"as_declared\":38,\"drifted\":2,\"held\":1}}' WHEN i % 131 = 0 THEN '{{\"as_declared\":40,\"failed\":1}}' \
             ELSE '{{\"as_declared\":41}}' END, '', '', {seen} FROM n"
        ))
        .await;
    }
}

async fn started(directory: &tempfile::TempDir, listen: SocketAddr) -> RunningHub {
    let options = ServerOptions {
        listen,
        state: directory.path().to_owned(),
        database: None,
        public_url: None,
        tls: TlsChoice::Plain,
        limits: ServeLimits::default(),
        proxies: TrustedProxies::default(),
        audit_archive: None,
        metrics_token: None,
    };
    server::start(options).await.unwrap()
}

/// An act that waits, on a host whose key has this seed.
pub(crate) fn item(host: &str, seed: u8, name: &str) -> PendingItem {
    let gib = 1 << 30;
    PendingItem {
        guest: "qemu/110".parse().unwrap(),
        guest_name: name.to_owned(),
        losses: vec![
            Loss { what: "local-lvm:vm-110-disk-0".to_owned(), size_bytes: Some(64 * gib) },
            Loss { what: "local-lvm:vm-110-disk-1".to_owned(), size_bytes: Some(512 * gib) },
            Loss { what: "snapshot before-upgrade".to_owned(), size_bytes: None },
        ],
        last_backup: LastBackup::At(UnixSeconds(now().0 - 9 * 86_400)),
        ..destroy_item(binding(host, seed), nonce(), now().minus(60))
    }
}

/// The item as its host tells it, and the approval of it.
pub(crate) fn told(item: &PendingItem, seed: u8) -> (Value, String) {
    let bytes = item.to_bytes().unwrap();
    let id = PendingItem::id(&bytes);
    let sealed = TestKey::new(seed).seal(Namespace::Pending, &bytes);
    let statement = item.statement(id, nonce(), window(), "no longer needed");
    let approval = TestKey::new(10).seal(Namespace::Op, &statement.to_bytes().unwrap());
    (json!({"id": id.to_string(), "item": sealed}), approval.to_string())
}

/// What a host with trouble of every kind tells.
pub(crate) fn troubled() -> Value {
    json!({
        "generation": {"number": 1, "signer": "author"},
        "refused": {"generation": 2, "code": "document", "why": "the document has 1 mistake",
            "diagnostics": ["web.toml:3:1: E0201: unknown key `coress`\n  | coress = 2\n  | ^^^^^^\n  hint: did you mean `cores`?"]},
        "agent": {"version": "0.2.0", "node": "pve1", "since": "2026-11-17T08:00:00Z", "mode": "enforce",
            "policy": {"disruptive_per_hour": "10", "destructive_per_day": "5", "desired_signed": "false", "anchor": "optional"},
            "troubles": ["the storage `nfs` cannot be read"]},
        "pass": {"at": "2026-11-17T10:00:00Z", "planned": 3, "succeeded": 2, "failed": 1, "held": 1, "in_sync": 2},
        "guests": [
            {"guest": "lxc/101", "name": "web", "state": "drifted",
             "differences": [{"key": "cores", "declared": "4", "actual": "2", "origin": {"file": "web.toml", "line": 3, "layer": "profile small"}},
                             {"key": "net0", "declared": "name=eth0,bridge=vmbr0,ip=dhcp", "actual": "name=eth0,bridge=vmbr1,ip=dhcp", "origin": {"file": "web.toml", "line": 7, "layer": "guest"}}],
             "after_restart": ["memory"], "power": "running", "declared": {"cores": "4", "memory": "1024", "hostname": "web", "onboot": "1"},
             "actual": {"cores": "2", "memory": "1024", "hostname": "web", "onboot": "1", "arch": "amd64", "ostype": "debian", "swap": "512"}},
            {"guest": "lxc/102", "name": "cache", "state": "as_declared"},
            {"guest": "qemu/110", "name": "billing", "state": "held", "held": [{"code": "pending_signature", "why": "destroying it needs a signature", "next": "sign the item with `evenkeel approve`"}]},
            {"guest": "qemu/111", "name": "mail", "state": "failed", "problems": ["the node has no storage `fast`"]},
        ],
        "ops": [
            {"op": "op_01JD0000000000000000000001", "guest": "lxc/101", "kind": "set_config", "state": "succeeded", "at": "2026-11-17T09:58:00Z",
             "changes": [{"key": "memory", "before": "512", "after": "1024"}]},
            {"op": "op_01JD0000000000000000000002", "guest": "qemu/111", "kind": "start", "state": "failed", "at": "2026-11-17T09:59:00Z", "reason": "start failed: no such storage"},
        ],
        "decisions": [{"id": "d1", "at": "2026-11-17T09:57:00Z", "guest": "qemu/110", "op": "destroy", "code": "pending_signature", "detail": "a destroy waits for a signature"}],
        "at": "2026-11-17T10:00:01Z",
    })
}
