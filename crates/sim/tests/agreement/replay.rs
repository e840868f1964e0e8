//! Replays rows in order against one world.

use std::collections::BTreeMap;

use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::release::Release;
use evenkeel_sim::{Event, Reply, Scenario, SimOutcome, SimRequest, Simulator, TOKENS};
use serde_json::Value;

use crate::prelude;
use crate::row::Row;

/// What a replay found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) compared: usize,
    pub(crate) agreed: usize,
    pub(crate) skipped: usize,
    pub(crate) digests_seen: usize,
    pub(crate) digests_equal: usize,
    pub(crate) differences: Vec<String>,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "counts of rows are far below 2^52")]
    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.agreed as f64 / (self.compared.max(1)) as f64
    }
}

/// One file on its way.
pub(crate) struct Replay {
    pub(crate) rows: Vec<Row>,
    pub(crate) sim: Simulator,
    pub(crate) report: Report,
    /// Captured UPIDs and ours.
    pub(crate) upids: BTreeMap<String, String>,
    /// How captured tasks ended, read ahead.
    pub(crate) exits: BTreeMap<String, String>,
    /// Configs as they were last taken over.
    pub(crate) last_config: BTreeMap<GuestId, serde_json::Map<String, Value>>,
    /// A config lock set only to show what a row shows, with what was there before.
    pub(crate) borrowed_lock: Option<(GuestId, Option<String>)>,
    /// The names of captured archives, which carry a time, and ours.
    pub(crate) archives: BTreeMap<String, String>,
    /// Tokens by the word a capture has for them, where they are not those of every scenario.
    tokens: BTreeMap<String, String>,
    ticket: Option<(String, String)>,
}

/// Words in a label that say the row was sent while a task was running on purpose.
const MEANWHILE: [&str; 8] = [
    "immediately",
    "during",
    "running status",
    "holds lock",
    "overrule",
    "abort",
    "conc ",
    "while shutdown",
];

/// No captured task needs more events than this to end.
const TASK_EVENTS: usize = 200;

impl Replay {
    pub(crate) fn new(rows: Vec<Row>, name: &str) -> Self {
        let nodes =
            rows.iter().filter_map(|row| row.path.split("/nodes/").nth(1)?.split('/').next());
        let node = nodes.filter(|node| node.starts_with("pve")).map(str::to_owned).next();
        let node = node.unwrap_or_else(|| "pve1".into());
        let version = rows.iter().find(|row| row.is("/version") && row.status == 200);
        let release =
            version.and_then(|row| row.data()["release"].as_str()?.parse().ok()).unwrap_or(
                if name.contains("9.2") || node == "pve9" { Release::V9_2 } else { Release::V8_4 },
            );
        let mut world = Scenario { release, node, ..Scenario::default() }.build();
        if let Some(store) = world.storages.get_mut("store") {
            store.put_file("vztmpl/broken_1_amd64.tar.gz", "vztmpl", "tgz", 13);
            store.volumes.retain(|name, _| !name.contains("debian"));
        }
        world.storages.retain(|name, _| matches!(name.as_str(), "local" | "store"));
        let tokens = prelude::furnish(&mut world, &rows);
        let mut exits = BTreeMap::new();
        for row in rows.iter().filter(|row| row.is("/status")) {
            if let (Some(upid), Some(exit)) =
                (row.data()["upid"].as_str(), row.data()["exitstatus"].as_str())
            {
                exits.insert(upid.to_owned(), exit.to_owned());
            }
        }
        let mut sim = Simulator::new(world);
        sim.close_after_protected = false;
        Self {
            rows,
            sim,
            report: Report::default(),
            upids: BTreeMap::new(),
            exits,
            last_config: BTreeMap::new(),
            borrowed_lock: None,
            archives: BTreeMap::new(),
            tokens,
            ticket: None,
        }
    }

    pub(crate) fn run(mut self) -> Report {
        for at in 0..self.rows.len() {
            let row = self.rows[at].clone();
            let killed = row.shows_killed();
            if !killed && !MEANWHILE.iter().any(|word| row.label.contains(word)) {
                self.sim.run_tasks();
            }
            self.align(at, &row);
            let Some(request) = self.request(&row) else {
                self.report.skipped += 1;
                continue;
            };
            if killed && let Some(own) = self.own_upid(&row) {
                if own.contains(":qmrestore:") {
                    // It was past its first moment.
                    self.step();
                }
                self.sim.happen(Event::KillTask { contains: own });
            }
            let before = row.guest().and_then(|guest| self.sim.world.guest(guest).cloned());
            let Some(reply) = self.answer(&row, &request) else {
                self.report.skipped += 1;
                continue;
            };
            self.judge(at, &row, &reply);
            // What the real server refused must not linger here when we took it.
            if let (true, true, Some(guest)) = (row.status >= 400, reply.status == 200, before) {
                self.sim.world.guests.insert(guest.id.vmid.get(), guest);
            }
            self.follow(&row, &reply);
        }
        self.report
    }

    /// Sends a request. Where the capture shows a task's end, ours gets the time to end as well.
    fn answer(&mut self, row: &Row, request: &SimRequest) -> Option<Reply> {
        for _ in 0..TASK_EVENTS {
            let SimOutcome::Reply(reply) = self.sim.call(request.clone()) else { return None };
            let status = |body: &Value| body["data"]["status"].as_str().map(str::to_owned);
            let ended =
                status(&row.body).as_deref() == Some("stopped") && row.path.contains("/tasks/");
            let running = reply.json().and_then(status).as_deref() == Some("running");
            match self.sim.next_event_ms() {
                Some(next) if ended && running => self.sim.advance(next),
                Some(_) | None => return Some(reply),
            }
        }
        None
    }

    /// Our UPID for the one in a row's path.
    fn own_upid(&self, row: &Row) -> Option<String> {
        let path = self.own_path(row)?;
        let rest = &path[path.find("UPID")?..];
        Some(rest.split(['/', '?']).next().unwrap_or_default().to_owned())
    }

    /// A captured text with our names for archives.
    fn ours(&self, text: &str) -> String {
        self.archives
            .iter()
            .fold(text.to_owned(), |text, (captured, own)| text.replace(captured, own))
    }

    /// Our text with the captured names of archives.
    pub(crate) fn theirs(&self, text: &str) -> String {
        self.archives
            .iter()
            .fold(text.to_owned(), |text, (captured, own)| text.replace(own, captured))
    }

    /// The request a row stands for; `None` if it cannot be sent without knowing more.
    fn request(&mut self, row: &Row) -> Option<SimRequest> {
        let unreplayable = row.method == "RAW"
            || row.status == 0
            || row.path.starts_with("/api2/html")
            || self.wants_unknown_snapshot(row);
        if unreplayable {
            return None;
        }
        let mut request = SimRequest::new(&row.method, &self.own_path(row)?);
        request = self.authorise(row, request);
        if let Some(body) = &row.raw_body {
            request.body.clone_from(body);
            let guessed = if row.label.contains("multipart") {
                Some("multipart/form-data; boundary=x")
            } else {
                None
            };
            return Some(match row.encoding.as_deref().or(guessed) {
                Some(kind) => request.header("Content-Type", kind),
                None => request,
            });
        }
        let Some(params) =
            row.params.clone().filter(|_| !matches!(row.method.as_str(), "GET" | "DELETE"))
        else {
            return Some(request);
        };
        if row.encoding.as_deref().is_some_and(|kind| kind.contains("json")) {
            return Some(request.json(&Value::Object(self.own_digest(row, params))));
        }
        let params = self.own_digest(row, params);
        let fields: Vec<(String, String)> = params
            .into_iter()
            .map(|(key, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (key, self.ours(&text))
            })
            .collect();
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        Some(request.form(&fields))
    }

    /// A read of a snapshot whose making is not in the file.
    fn wants_unknown_snapshot(&self, row: &Row) -> bool {
        let name = row.path.split("?snapshot=").nth(1).filter(|_| row.status == 200);
        let guest = row.guest().and_then(|guest| self.sim.world.guest(guest));
        name.is_some_and(|name| {
            !guest.is_some_and(|g| g.config.snapshots.iter().any(|snapshot| snapshot.name == name))
        })
    }

    /// UPIDs in the path are replaced by our own.
    fn own_path(&self, row: &Row) -> Option<String> {
        let Some(at) = row.path.find("UPID") else { return Some(self.ours(&row.path)) };
        let rest = &row.path[at..];
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let captured = rest[..end]
            .replace("%3A", ":")
            .replace("%40", "@")
            .replace("%21", "!")
            .replace("%3E", ">");
        let gone = row.body["errors"]["upid"].is_string()
            || row.data()["t"].is_string()
            || row.data()[0]["name"].is_string();
        match self.upids.get(&captured) {
            Some(own) => Some(row.path.replacen(&rest[..end], own, 1)),
            None if gone || row.status == 403 => Some(row.path.clone()),
            None => None,
        }
    }

    /// A digest that was accepted becomes the one our file has now.
    fn own_digest(
        &self,
        row: &Row,
        mut params: serde_json::Map<String, Value>,
    ) -> serde_json::Map<String, Value> {
        if row.status == 200
            && params.get("digest").and_then(Value::as_str).is_some_and(|d| d.len() == 40)
            && let Some(guest) = row.guest()
        {
            let (token, secret, _) = TOKENS[0];
            let path = format!("/api2/json/nodes/{}/{guest}/config", self.sim.world.node);
            let read = SimRequest::new("GET", &path).token(&format!("{token}={secret}"));
            // Asked of a copy, so that the request log and the clock stay as they are.
            let mut copy = Simulator::new(self.sim.world.clone());
            if let SimOutcome::Reply(reply) = copy.call(read)
                && let Some(digest) = reply.json().and_then(|body| body["data"]["digest"].as_str())
            {
                params.insert("digest".into(), Value::String(digest.to_owned()));
            }
        }
        params
    }

    fn authorise(&mut self, row: &Row, request: SimRequest) -> SimRequest {
        let token = |at: usize| {
            let (name, secret, _) = TOKENS[at];
            format!("{name}={secret}")
        };
        let reason = row.reason.as_str();
        if let Some(token) = row.auth.as_ref().and_then(|auth| self.tokens.get(auth)) {
            return request.token(token);
        }
        match row.auth.as_deref() {
            Some("root") => request.token(&token(0)),
            Some("ro") if row.status == 401 => request.token("viewer@pve!ro=disabled"),
            Some("ro") => request.token(&token(1)),
            Some("ops") => request.token(&token(2)),
            Some("bare") => request.token(&token(3)),
            Some(_) if reason == "No ticket" => request.header("Authorization", "Bearer x"),
            Some(_) if reason == "Authentication failed!" => request.token("root@pam!full=wrong"),
            Some(_) => {
                request.header("Authorization", &format!("PVEAuthCookie={}", self.session().0))
            }
            None if row.is("/access/ticket") || reason == "No ticket" => request,
            None if reason == "Authentication failed!" => {
                request.header("Cookie", "PVEAuthCookie=garbage")
            }
            None => {
                let (ticket, csrf) = self.session();
                let request = request.header("Cookie", &format!("PVEAuthCookie={ticket}"));
                if reason.contains("csrf") {
                    request
                } else {
                    request.header("CSRFPreventionToken", &csrf)
                }
            }
        }
    }

    /// A session of root, opened when first needed.
    fn session(&mut self) -> (String, String) {
        if self.ticket.is_none() {
            let login = SimRequest::new("POST", "/api2/json/access/ticket")
                .form(&[("username", "root@pam"), ("password", "secret")]);
            if let SimOutcome::Reply(reply) = self.sim.call(login) {
                let text = |name: &str| {
                    reply
                        .json()
                        .and_then(|body| body["data"][name].as_str())
                        .unwrap_or_default()
                        .to_owned()
                };
                self.ticket = Some((text("ticket"), text("CSRFPreventionToken")));
            }
        }
        self.ticket.clone().unwrap_or_default()
    }

    fn judge(&mut self, at: usize, row: &Row, reply: &Reply) {
        self.report.compared += 1;
        match self.difference(at, row, reply) {
            None => self.report.agreed += 1,
            Some(text) => self.report.differences.push(format!(
                "row {at} [{}] {} {}: {text}",
                row.label,
                row.method,
                row.bare_path()
            )),
        }
    }
}
