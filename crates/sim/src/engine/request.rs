//! One request on its way: log-in, faults, queue, handler, answer.

use evenkeel_core::model::id::{GuestId, GuestKind};
use serde_json::{Value, json};

use super::{Holder, SimOutcome, Simulator};
use crate::access::Identity;
use crate::endpoints::{self, Context, EndpointCall};
use crate::fault::{Effect, LostWorker};
use crate::odd_row::bend;
use crate::record::RequestRecord;
use crate::reply::{Formatter, Reply, ReplyFailure, Success, render};
use crate::request::{Param, Params, SimRequest, decode, percent_decode};
use crate::schema::{EndpointSchema, Schema, Who, check_parameters};
use crate::task::TaskStage;

/// PVE has three worker processes per daemon.
const WORKERS: usize = 3;
/// Every refused log-in costs the client this long.
const UNAUTHORISED_DELAY_MS: u64 = 3_000;
/// The front proxy gives up on the root daemon after this.
const PROXY_LIMIT_MS: u64 = 30_000;
/// What a daemon says that did not hear of the worker it has forked.
const NO_WORKER: &str = "got no worker upid - start worker failed";

/// A request that has not been answered, or whose handler still works after the proxy gave up.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    arrived_ms: u64,
    record: usize,
    state: State,
    outcome: Option<SimOutcome>,
    answered: bool,
    after: Option<Effect>,
    /// When waiting for the file lock ends, from the first attempt on.
    lock_deadline_ms: Option<u64>,
    /// Since when it waits: whoever waits longer comes first.
    waits_since_ms: Option<u64>,
    work: Option<RequestWork>,
}

/// What a handler needs to run, again and again if it has to wait.
#[derive(Debug, Clone)]
pub(super) struct RequestWork {
    pub(super) method: String,
    pub(super) segments: Vec<String>,
    pub(super) params: Params,
    who: Identity,
    formatter: Formatter,
    protected: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Queued {
        from_ms: u64,
    },
    /// All workers are busy; tried again whenever anything happens.
    Blocked,
    Locked {
        guest: GuestId,
        deadline_ms: u64,
    },
    Awaiting {
        upid: String,
        deadline_ms: u64,
        failed: String,
    },
    Holding {
        until_ms: u64,
        reply: Reply,
    },
    /// A worker asks a storage that does not answer.
    Hanging,
    Done,
}

impl PendingRequest {
    /// The final outcome, once.
    pub(super) fn take_outcome(&mut self) -> Option<SimOutcome> {
        self.outcome.take()
    }

    pub(super) fn is_working(&self) -> bool {
        self.state != State::Done
    }

    /// Whether its worker waits for a storage.
    pub(super) fn is_hanging(&self) -> bool {
        self.state == State::Hanging
    }

    pub(super) fn drop_connection(&mut self) {
        if !self.answered {
            (self.outcome, self.answered, self.state) =
                (Some(SimOutcome::Dropped), true, State::Done);
        }
    }

    pub(super) fn next_event_ms(&self) -> Option<u64> {
        let own = match &self.state {
            State::Queued { from_ms } => Some(*from_ms),
            State::Locked { deadline_ms, .. } | State::Awaiting { deadline_ms, .. } => {
                Some(*deadline_ms)
            }
            State::Holding { until_ms, .. } => Some(*until_ms),
            State::Blocked | State::Hanging | State::Done => None,
        };
        let limit =
            (!self.answered && self.holds_worker()).then_some(self.arrived_ms + PROXY_LIMIT_MS);
        match (own, limit) {
            (Some(own), Some(limit)) => Some(own.min(limit)),
            (own, limit) => own.or(limit),
        }
    }

    fn holds_worker(&self) -> bool {
        match self.state {
            State::Locked { .. } | State::Awaiting { .. } | State::Hanging => {
                self.work.as_ref().is_some_and(|work| work.protected)
            }
            State::Queued { .. } | State::Blocked | State::Holding { .. } | State::Done => false,
        }
    }
}

impl Simulator {
    /// Takes a request in: everything that is decided before a worker sees it.
    pub(super) fn receive(&mut self, request: &SimRequest) -> PendingRequest {
        let record = self.record(request);
        let mut pending = PendingRequest {
            arrived_ms: self.now_ms,
            record,
            state: State::Queued { from_ms: self.now_ms },
            outcome: None,
            answered: false,
            after: None,
            lock_deadline_ms: None,
            waits_since_ms: None,
            work: None,
        };
        if request.path().starts_with("/sim/") {
            let reply = endpoints::admin(self, request);
            return self.hold(pending, 0, reply);
        }
        match self.faults.on_request(&request.method, request.path()) {
            Some(Effect::Latency { ms }) => {
                pending.state = State::Queued { from_ms: self.now_ms + ms }
            }
            Some(Effect::DropBefore) => {
                pending.drop_connection();
                return pending;
            }
            Some(Effect::ProxyStatus { status, executed }) if !executed || status == 595 => {
                let reply = Reply::plain(status, proxy_text(status));
                return self.hold(pending, 0, reply);
            }
            after => pending.after = after,
        }
        match self.understand(request) {
            Ok(work) => {
                self.records[record].user = Some(work.who.full());
                self.records[record].params = work.params.keys().cloned().collect();
                pending.work = Some(work);
                pending
            }
            Err((delay_ms, reply)) => self.hold(pending, delay_ms, reply),
        }
    }

    fn hold(&self, mut pending: PendingRequest, delay_ms: u64, reply: Reply) -> PendingRequest {
        let from = match pending.state {
            State::Queued { from_ms } => from_ms,
            State::Blocked
            | State::Locked { .. }
            | State::Awaiting { .. }
            | State::Holding { .. }
            | State::Hanging
            | State::Done => self.now_ms,
        };
        pending.state = State::Holding { until_ms: from + delay_ms, reply };
        pending
    }

    fn record(&mut self, request: &SimRequest) -> usize {
        let segments: Vec<&str> = request.path().split('/').filter(|s| !s.is_empty()).collect();
        let guest =
            segments.windows(2).find_map(|pair| format!("{}/{}", pair[0], pair[1]).parse().ok());
        self.records.push(RequestRecord {
            at_ms: self.now_ms,
            method: request.method.clone(),
            path: request.path().to_owned(),
            params: Vec::new(),
            guest,
            mutating: matches!(request.method.as_str(), "POST" | "PUT" | "DELETE"),
            user: None,
            executed_ms: None,
            ended_ms: None,
            status: None,
            upid: None,
        });
        self.records.len() - 1
    }

    /// Method, path, log-in and body; the error is an answer and how long it is held back.
    fn understand(&self, request: &SimRequest) -> Result<RequestWork, (u64, Reply)> {
        let method = request.method.as_str();
        if !matches!(method, "GET" | "POST" | "PUT" | "DELETE") {
            let reason = format!("method '{method}' not available");
            return Err((0, Reply::empty(501, &reason)));
        }
        let mut segments: Vec<String> = request
            .path()
            .split('/')
            .filter(|s| !s.is_empty())
            .map(|s| percent_decode(s, false))
            .collect();
        let formatter = match segments.get(..2).map(|head| [head[0].as_str(), head[1].as_str()]) {
            Some(["api2", "json"]) => Formatter::Json,
            Some(["api2", "extjs"]) => Formatter::Extjs,
            Some(["api2", "html"]) => Formatter::Html,
            Some(["api2", format]) if is_format(format) => {
                let rest = segments.get(2..).unwrap_or_default().join("/");
                let text = format!("no formatter for uri /{rest}, {format}");
                return Err((0, Reply::plain(501, &text)));
            }
            Some(_) | None => return Err((0, Reply::plain(501, "no such uri"))),
        };
        segments.drain(..2);
        if request.find("transfer-encoding").is_some() {
            return Err((0, Reply::plain(501, "chunked transfer encoding not supported")));
        }
        let world_call = segments == ["access", "ticket"];
        let who = match self.log_in(request) {
            Ok(who) => who,
            Err(_) if world_call => Identity { user: String::new(), token: None },
            Err(reason) => {
                let delay = if self.delay_unauthorised { UNAUTHORISED_DELAY_MS } else { 0 };
                return Err((delay, Reply::empty(401, reason)));
            }
        };
        let params = decode(request, self.world.release()).map_err(|reply| (0, reply))?;
        let password = params.get("password");
        let published = password == Some(&Param::Text(crate::world::PASSWORD.to_owned()));
        if world_call && published && !request.from_loopback {
            return Err((UNAUTHORISED_DELAY_MS, Reply::empty(401, "authentication failure")));
        }
        let route = Schema::shared().route(method, &segments);
        let protected = route.is_some_and(|(endpoint, _)| endpoint.protected);
        Ok(RequestWork { method: method.to_owned(), segments, params, who, formatter, protected })
    }

    fn log_in(&self, request: &SimRequest) -> Result<Identity, &'static str> {
        const FAILED: &str = "Authentication failed!";
        let now_s = self.world.unix(self.now_ms);
        let header = request.find("authorization").unwrap_or_default();
        if let Some(rest) = header.strip_prefix("PVEAPIToken") {
            let token = percent_decode(rest.trim_start_matches(['=', ' ']), false);
            if !request.from_loopback && crate::scenario::is_published(&token) {
                return Err(FAILED);
            }
            return self.world.access.by_token(&token, now_s).ok_or(FAILED);
        }
        let cookies = request.find("cookie").unwrap_or_default().split(';').map(str::trim);
        let mut sources = cookies.chain([header]);
        let Some(ticket) = sources.find_map(|source| source.strip_prefix("PVEAuthCookie=")) else {
            return Err("No ticket");
        };
        let ticket = percent_decode(ticket, false);
        let who = self.world.access.by_ticket(&ticket).ok_or(FAILED)?;
        if request.method != "GET" {
            let expected = endpoints::csrf_token(&ticket);
            if request.find("csrfpreventiontoken") != Some(expected.as_str()) {
                return Err("Permission denied - invalid csrf token");
            }
        }
        Ok(who)
    }

    /// Moves every request that can move; says whether any did.
    pub(super) fn run_requests(&mut self) -> bool {
        let mut moved = false;
        // What is done and recorded waits only for somebody to fetch it, perhaps for ever.
        let records = &self.records;
        let is_over = |pending: &PendingRequest| {
            !pending.is_working() && records[pending.record].ended_ms.is_some()
        };
        let open = self.pending.iter().filter(|(_, pending)| !is_over(pending));
        for ticket in open.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let Some(mut pending) = self.pending.remove(&ticket) else { continue };
            moved |= self.step_request(&mut pending);
            self.note_writes();
            if !pending.is_working() {
                self.records[pending.record].ended_ms.get_or_insert(self.now_ms);
            }
            self.pending.insert(ticket, pending);
        }
        self.pending.retain(|_, pending| pending.is_working() || pending.outcome.is_some());
        moved
    }

    fn step_request(&mut self, pending: &mut PendingRequest) -> bool {
        let now_ms = self.now_ms;
        if !pending.answered
            && pending.holds_worker()
            && now_ms >= pending.arrived_ms + PROXY_LIMIT_MS
        {
            self.answer(pending, Reply::plain(596, "Connection timed out"));
        }
        match pending.state.clone() {
            State::Queued { from_ms } if from_ms <= now_ms => self.start(pending),
            State::Blocked => self.start(pending),
            State::Hanging => {
                let hangs = pending.work.as_ref().is_some_and(|work| self.hangs(work));
                if !hangs {
                    self.execute(pending);
                }
                !hangs
            }
            State::Locked { guest, deadline_ms } => {
                let since_ms = pending.waits_since_ms.unwrap_or(now_ms);
                let held =
                    self.locks.contains_key(&guest) || self.task_waits_since(guest, since_ms);
                if held && deadline_ms > now_ms {
                    return false;
                }
                if held {
                    let text = super::schedule::lock_timeout_text(guest);
                    self.conclude(pending, Err(ReplyFailure::Died(text)));
                } else {
                    self.execute(pending);
                }
                true
            }
            State::Awaiting { upid, deadline_ms, failed } => {
                let exit = self.tasks.find(&upid).and_then(|task| task.exit.clone());
                let result = match exit {
                    None if deadline_ms > now_ms => return false,
                    None => Ok(json!(upid).into()),
                    Some(exit) if exit == "OK" || exit.starts_with("WARNINGS") => {
                        Ok(Value::Null.into())
                    }
                    Some(exit) => Err(ReplyFailure::Died(format!("{failed}{exit}"))),
                };
                self.conclude(pending, result);
                true
            }
            State::Holding { until_ms, reply } if until_ms <= now_ms => {
                pending.state = State::Done;
                self.answer(pending, reply);
                true
            }
            State::Queued { .. } | State::Holding { .. } | State::Done => false,
        }
    }

    /// Gives a queued request to a worker, if one is free.
    fn start(&mut self, pending: &mut PendingRequest) -> bool {
        let protected = pending.work.as_ref().is_some_and(|work| work.protected);
        let busy = self.pending.values().filter(|other| other.holds_worker()).count();
        if protected && busy >= WORKERS {
            pending.state = State::Blocked;
            return false;
        }
        if pending.work.as_ref().is_some_and(|work| self.hangs(work)) {
            pending.state = State::Hanging;
            return true;
        }
        self.execute(pending);
        true
    }

    fn execute(&mut self, pending: &mut PendingRequest) {
        let Some(work) = pending.work.clone() else {
            pending.state = State::Done;
            return;
        };
        let tasks_before = self.tasks.all.len();
        let result = self.run_handler(&work);
        let forked = self.tasks.all.get(tasks_before).map(|task| task.upid.to_string());
        if forked.is_some() {
            self.records[pending.record].upid.clone_from(&forked);
        }
        if let (Some(Effect::WorkerLost { worker }), Some(_)) = (&pending.after, &forked) {
            let worker = *worker;
            return self.conclude_without_worker(pending, tasks_before, worker);
        }
        let now_ms = self.now_ms;
        match result {
            Err(ReplyFailure::Locked { guest, timeout_ms }) => {
                let deadline_ms = *pending.lock_deadline_ms.get_or_insert(now_ms + timeout_ms);
                pending.waits_since_ms.get_or_insert(now_ms);
                pending.state = State::Locked { guest, deadline_ms };
            }
            Err(ReplyFailure::Awaits { upid, for_ms, failed }) => {
                pending.state = State::Awaiting { upid, deadline_ms: now_ms + for_ms, failed };
            }
            result => {
                if let (Some(Effect::LateFork { ms }), Some(_)) = (&pending.after, &forked) {
                    for task in self.tasks.all.iter_mut().skip(tasks_before) {
                        task.stage = TaskStage::Unforked { at_ms: now_ms + ms };
                        task.upid.start_s += ms / 1000;
                    }
                    let forked = self.tasks.all.get(tasks_before);
                    self.records[pending.record].upid = forked.map(|task| task.upid.to_string());
                }
                self.conclude(pending, result);
            }
        }
    }

    /// The daemon forked a worker, did not hear of it, and says so.
    fn conclude_without_worker(
        &mut self,
        pending: &mut PendingRequest,
        task: usize,
        worker: LostWorker,
    ) {
        self.lose_worker(task, worker);
        match worker {
            LostWorker::Unborn => self.records[pending.record].upid = None,
            LostWorker::Working => self.records[pending.record].executed_ms = Some(self.now_ms),
            LostWorker::Killed | LostWorker::Orphaned => {}
        }
        self.conclude(pending, Err(ReplyFailure::died(NO_WORKER)));
    }

    fn run_handler(&mut self, work: &RequestWork) -> Result<Success, ReplyFailure> {
        let release = self.world.release();
        let Some((endpoint, holes)) = Schema::shared().route(&work.method, &work.segments) else {
            let path = work.segments.join("/");
            return Err(ReplyFailure::NoMethod(format!(
                "Method '{} /{path}' not implemented",
                work.method
            )));
        };
        let hole = |name: &str| holes.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        if let Some(node) =
            hole("node").filter(|node| *node != self.world.node && *node != "localhost")
        {
            return Err(ReplyFailure::Died(format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
            )));
        }
        self.permit(endpoint, &holes, &work.who)?;
        let mut params = work.params.clone();
        let errors = check_parameters(Schema::shared(), endpoint, &holes, &mut params, release);
        if !errors.is_empty() {
            return Err(ReplyFailure::Params(errors));
        }
        let kind = work.segments.get(2).and_then(|word| word.parse::<GuestKind>().ok());
        if !self.world.quorate && endpoint.call.writes_config() {
            return Err(ReplyFailure::died("cluster not ready - no quorum?"));
        }
        let EndpointCall::TaskStop = endpoint.call else {
            let unseen_storages = &self.hanging.unseen(self.now_ms);
            let context = &mut Context {
                world: &mut self.world,
                tasks: &mut self.tasks,
                locks: &self.locks,
                seen: &self.seen,
                who: &work.who,
                params: &params,
                holes: &holes,
                kind,
                now_ms: self.now_ms,
                unseen_storages,
            };
            return endpoints::dispatch(context, endpoint.call);
        };
        let upid = hole("upid").unwrap_or_default().to_owned();
        endpoints::check_stop(&self.world, &self.tasks, &work.who, &upid)?;
        self.stop_task(&upid);
        Ok(Value::Null.into())
    }

    fn permit(
        &self,
        endpoint: &EndpointSchema,
        holes: &[(String, String)],
        who: &Identity,
    ) -> Result<(), ReplyFailure> {
        let Who::Holder { path, privileges } = &endpoint.who else { return Ok(()) };
        let mut path = path.clone();
        for (name, value) in holes {
            path = path.replace(&format!("{{{name}}}"), value);
        }
        let any: Vec<&str> = privileges.iter().map(String::as_str).collect();
        if self.world.access.may(who, &path, &any, self.world.release()) {
            return Ok(());
        }
        Err(ReplyFailure::Denied(format!("{path}, {}", any.join("|"))))
    }

    fn conclude(&mut self, pending: &mut PendingRequest, result: Result<Success, ReplyFailure>) {
        pending.state = State::Done;
        if result.is_ok() {
            self.records[pending.record].executed_ms = Some(self.now_ms);
        }
        let refused = matches!(result, Err(ReplyFailure::Unauthorised(_)));
        let (formatter, protected) = pending
            .work
            .as_ref()
            .map_or((Formatter::Json, false), |work| (work.formatter, work.protected));
        let mut reply = render(result, formatter, self.world.release());
        reply.close |= protected && self.close_after_protected;
        if refused && self.delay_unauthorised {
            pending.state = State::Holding { until_ms: self.now_ms + UNAUTHORISED_DELAY_MS, reply };
            return;
        }
        self.answer(pending, reply);
    }

    fn answer(&mut self, pending: &mut PendingRequest, reply: Reply) {
        if pending.answered {
            return;
        }
        pending.answered = true;
        let reply = match pending.after.take() {
            Some(Effect::DropAfter | Effect::LateFork { .. }) => {
                pending.outcome = Some(SimOutcome::Dropped);
                return;
            }
            Some(Effect::ProxyStatus { status, .. }) => Reply::plain(status, proxy_text(status)),
            Some(Effect::Garbage { body }) => {
                Reply { body: crate::reply::ReplyBody::Text(body), ..reply }
            }
            Some(Effect::OddRow { row, field, becomes }) => {
                let mut reply = reply;
                if let crate::reply::ReplyBody::Json(body) = &mut reply.body {
                    bend(body, row.as_deref(), field.as_deref(), becomes);
                }
                reply
            }
            Some(
                Effect::Latency { .. }
                | Effect::DropBefore
                | Effect::WorkerLost { .. }
                | Effect::TaskLogs { .. }
                | Effect::TaskFails { .. }
                | Effect::TaskFailsUncleanly { .. }
                | Effect::TaskKilled
                | Effect::TaskWarns { .. },
            )
            | None => reply,
        };
        self.records[pending.record].status = Some(reply.status);
        pending.outcome = Some(SimOutcome::Reply(reply));
    }
}

/// What can be the name of a format: a letter, then letters and digits.
fn is_format(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase();
    text.len() > 1
        && text.bytes().next().is_some_and(lower)
        && text.bytes().all(|b| lower(b) || b.is_ascii_digit())
}

fn proxy_text(status: u16) -> &'static str {
    match status {
        595 => "Connection refused",
        596 => "Connection timed out",
        _ => "Too many redirections",
    }
}

impl Context<'_> {
    /// The guest's file lock: held by nobody, or this handler has to wait and run again.
    pub(crate) fn lock(&self, guest: GuestId, timeout_ms: u64) -> Result<(), ReplyFailure> {
        match self.locks.get(&guest) {
            None => Ok(()),
            Some(Holder::Task(_) | Holder::Readers(_) | Holder::Foreign { .. }) => {
                Err(ReplyFailure::Locked { guest, timeout_ms })
            }
        }
    }
}
