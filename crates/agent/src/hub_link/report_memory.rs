//! What the hub was told, and what is news: reports as differences, whole ones in pages.
//!
//! The link asks here what to say and confirms what the hub keeps. A page is sent until it is answered, byte for byte: the
//! hub answers the same number the same way. It never says anything that [`HostPicture`] does not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use evenkeel_core::fleet::{
    EnvelopeVerdict, GuestReport, HostReport, PendingReport, RefusedGeneration, ReportedDecision,
    SealedText, ToldOperation,
};
use evenkeel_core::sign::PendingId;
use serde::Serialize;

use super::picture::{HostPicture, without_time};

/// A page is closed at this size, well below what a hub reads.
const PAGE_BYTES: usize = 600 * 1024;

/// Operations, and decisions, that wait to be told; the oldest go first. The journal has all of them.
const HISTORY_MAX: usize = 1_000;

/// How many of either are told in one report, and in how many bytes.
const HISTORY_PER_REPORT: usize = 200;
const HISTORY_BYTES: usize = 200 * 1024;

/// How many verdicts are told in one report: each is signed, and a hub that repeats envelopes is answered for every one.
const VERDICTS_PER_REPORT: usize = 100;

/// What was told, and what waits to be.
#[derive(Debug, Default)]
pub(super) struct ReportMemory {
    /// None until a whole report was kept.
    told: Option<Told>,
    verdicts: Vec<EnvelopeVerdict>,
    ops: VecDeque<ToldOperation>,
    decisions: VecDeque<ReportedDecision>,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Told {
    picture: HostPicture,
    pending: BTreeSet<PendingId>,
}

/// What is so now.
#[derive(Debug)]
pub(super) struct ReportedNow {
    pub(super) picture: HostPicture,
    pub(super) pending: BTreeMap<PendingId, SealedText>,
    /// A head that shall go out.
    pub(super) head: Option<SealedText>,
    pub(super) at: String,
}

/// Pages to be sent one after the other.
#[derive(Debug)]
pub(super) struct PagedReport {
    pub(super) pages: VecDeque<HostReport>,
    /// Whether the first page stands for itself.
    pub(super) whole: bool,
    after: Told,
    verdicts: usize,
    ops: usize,
    decisions: usize,
}

impl ReportMemory {
    pub(super) fn verdict(&mut self, verdict: EnvelopeVerdict) {
        self.verdicts.push(verdict);
    }

    /// What happened since; an operation takes the place of what was to be told of it.
    pub(super) fn history(&mut self, ops: Vec<ToldOperation>, decisions: Vec<ReportedDecision>) {
        for op in ops {
            self.ops.retain(|other| other.op != op.op);
            self.ops.push_back(op);
        }
        self.decisions.extend(decisions);
        self.ops.drain(..self.ops.len().saturating_sub(HISTORY_MAX));
        self.decisions.drain(..self.decisions.len().saturating_sub(HISTORY_MAX));
    }

    /// Whether everything that happened goes into the next report.
    pub(super) fn history_fits(&self) -> bool {
        fitting(&self.ops).len() == self.ops.len()
            && fitting(&self.decisions).len() == self.decisions.len()
    }

    /// The hub knows nothing of us any more.
    pub(super) fn forget(&mut self) {
        self.told = None;
    }

    /// What there is to say; none if nothing is new.
    pub(super) fn news(&self, now: ReportedNow) -> Option<PagedReport> {
        let ReportedNow { picture, pending, head, at } = now;
        let whole = self.told.is_none();
        let before = self.told.clone().unwrap_or_default();
        let old = &before.picture;
        let pass_is_news =
            whole || without_time(old.pass.as_ref()) != without_time(picture.pass.as_ref());
        let over = RefusedGeneration {
            generation: evenkeel_core::fleet::Generation::NONE,
            manifest: None,
            code: String::new(),
            why: String::new(),
            next: String::new(),
            diagnostics: Vec::new(),
        };
        let first = HostReport {
            generation: picture.generation.clone().filter(|_| old.generation != picture.generation),
            refused: (old.refused != picture.refused)
                .then(|| picture.refused.clone().unwrap_or(over)),
            agent: (whole || old.agent != picture.agent).then(|| picture.agent.clone()),
            pass: picture.pass.clone().filter(|_| pass_is_news),
            gone: old
                .guests
                .keys()
                .filter(|id| !picture.guests.contains_key(*id))
                .cloned()
                .collect(),
            ops: fitting(&self.ops),
            decisions: fitting(&self.decisions),
            pending_gone: before
                .pending
                .iter()
                .filter(|id| !pending.contains_key(*id))
                .copied()
                .collect(),
            verdicts: self.verdicts.iter().take(VERDICTS_PER_REPORT).cloned().collect(),
            head,
            at,
            ..HostReport::default()
        };
        let guests: Vec<&GuestReport> = picture
            .guests
            .iter()
            .filter(|(id, guest)| old.guests.get(*id) != Some(*guest))
            .map(|(_, guest)| guest.as_ref())
            .collect();
        let items = pending.iter().filter(|(id, _)| !before.pending.contains(*id));
        let items: Vec<PendingReport> =
            items.map(|(id, item)| PendingReport { id: *id, item: item.clone() }).collect();
        if first.is_empty() && guests.is_empty() && items.is_empty() && !whole {
            return None;
        }
        let verdicts = first.verdicts.len();
        let ops = first.ops.len();
        let decisions = first.decisions.len();
        let pages = paged(first, &guests, items);
        let pending = pending.into_keys().collect();
        let after = Told { picture, pending };
        Some(PagedReport { pages, whole, after, verdicts, ops, decisions })
    }

    /// The hub keeps all pages.
    pub(super) fn kept(&mut self, report: PagedReport) {
        self.verdicts.drain(..report.verdicts.min(self.verdicts.len()));
        self.ops.drain(..report.ops.min(self.ops.len()));
        self.decisions.drain(..report.decisions.min(self.decisions.len()));
        self.told = Some(report.after);
    }
}

/// As much of a history as one report holds, oldest first.
fn fitting<T: Clone + Serialize>(waiting: &VecDeque<T>) -> Vec<T> {
    let mut bytes = 0;
    let fits = |entry: &&T| {
        bytes += serde_json::to_vec(entry).map_or(0, |json| json.len());
        bytes <= HISTORY_BYTES
    };
    waiting.iter().take(HISTORY_PER_REPORT).take_while(fits).cloned().collect()
}

/// Fills pages up to their size.
fn paged(
    first: HostReport,
    guests: &[&GuestReport],
    items: Vec<PendingReport>,
) -> VecDeque<HostReport> {
    let at = first.at.clone();
    let mut pages = VecDeque::from([first]);
    let mut bytes = pages.back().map_or(0, |page| page.to_bytes().len());
    let mut page_for = |more: usize, pages: &mut VecDeque<HostReport>| {
        if bytes + more > PAGE_BYTES {
            pages.push_back(HostReport { at: at.clone(), ..HostReport::default() });
            bytes = 0;
        }
        bytes += more + 1;
    };
    for guest in guests {
        let length = serde_json::to_vec(guest).map_or(0, |json| json.len());
        page_for(length, &mut pages);
        if let Some(page) = pages.back_mut() {
            page.guests.push((*guest).clone());
        }
    }
    for item in items {
        page_for(item.item.payload.len() * 2, &mut pages);
        if let Some(page) = pages.back_mut() {
            page.pending.push(item);
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evenkeel_core::fleet::PassReport;

    use super::*;

    fn guest(id: usize, state: &str) -> (String, Arc<GuestReport>) {
        let id = format!("lxc/{id}");
        let report = GuestReport {
            guest: id.clone(),
            state: state.into(),
            problems: vec!["x".repeat(3_000)],
            ..GuestReport::default()
        };
        (id, Arc::new(report))
    }

    fn now(guests: &[(usize, &str)], at: &str) -> ReportedNow {
        let pass = Some(PassReport { at: at.into(), ..PassReport::default() });
        let guests = guests.iter().map(|(id, state)| guest(*id, state)).collect();
        let picture = HostPicture { pass, guests, ..HostPicture::default() };
        ReportedNow { picture, pending: BTreeMap::new(), head: None, at: at.into() }
    }

    #[test]
    fn a_host_at_rest_says_nothing_and_a_change_is_said_alone() {
        let mut memory = ReportMemory::default();
        let first = memory.news(now(&[(1, "as_declared"), (2, "as_declared")], "1")).unwrap();
        assert!(first.whole && first.pages[0].guests.len() == 2);
        memory.kept(first);
        assert!(memory.news(now(&[(1, "as_declared"), (2, "as_declared")], "2")).is_none());
        let changed = memory.news(now(&[(1, "drifted")], "3")).unwrap();
        let page = &changed.pages[0];
        assert!(!changed.whole && page.guests.len() == 1 && page.gone == ["lxc/2"]);
        assert!(memory.news(now(&[(1, "drifted")], "3")).is_some(), "until the hub keeps it");
        memory.forget();
        assert!(memory.news(now(&[], "4")).unwrap().whole);
    }

    #[test]
    fn pages_stay_below_what_a_hub_reads_and_hold_every_guest() {
        let memory = ReportMemory::default();
        let many: Vec<(usize, &str)> = (0..1_000).map(|id| (id, "drifted")).collect();
        let report = memory.news(now(&many, "1")).unwrap();
        assert!(report.pages.len() > 3);
        assert!(report.pages.iter().all(|page| page.to_bytes().len() < 1024 * 1024));
        let told: usize = report.pages.iter().map(|page| page.guests.len()).sum();
        assert_eq!(told, 1_000);
    }

    #[test]
    fn a_history_is_told_in_parts_in_order_and_each_op_once() {
        let op = |number: usize, state: &str| ToldOperation {
            op: format!("op_{number}"),
            state: state.into(),
            reason: "x".repeat(1_500),
            ..ToldOperation::default()
        };
        let decision = |number: usize| ReportedDecision {
            id: number.to_string(),
            ..ReportedDecision::default()
        };
        let mut memory = ReportMemory::default();
        memory.kept(memory.news(now(&[], "1")).unwrap());
        memory.history((0..1_500).map(|n| op(n, "started")).collect(), vec![decision(1)]);
        memory.history(vec![op(700, "succeeded")], vec![decision(2)]);
        assert!(!memory.history_fits());
        let mut told = Vec::new();
        let mut decided = Vec::new();
        while let Some(report) = memory.news(now(&[], "2")) {
            assert!(report.pages[0].to_bytes().len() < 300 * 1024);
            told.extend(report.pages[0].ops.iter().map(|op| op.op.clone()));
            decided.extend(report.pages[0].decisions.iter().map(|decision| decision.id.clone()));
            memory.kept(report);
        }
        assert!(memory.history_fits());
        // The oldest went, and what changed since is told last.
        let mut expected: Vec<usize> = (500..1_500).filter(|n| *n != 700).collect();
        expected.push(700);
        let expected: Vec<String> = expected.iter().map(|n| format!("op_{n}")).collect();
        assert_eq!((told, decided), (expected, vec!["1".to_owned(), "2".to_owned()]));
    }

    #[test]
    fn a_verdict_is_said_until_it_is_kept() {
        let mut memory = ReportMemory::default();
        memory.kept(memory.news(now(&[], "1")).unwrap());
        let envelope = format!("env_{}", "0".repeat(32)).parse().unwrap();
        memory.verdict(EnvelopeVerdict {
            envelope,
            code: "replay".into(),
            op: None,
            detail: String::new(),
            sealed: None,
        });
        let report = memory.news(now(&[], "2")).unwrap();
        assert_eq!(report.pages[0].verdicts.len(), 1);
        assert_eq!(memory.news(now(&[], "2")).unwrap().pages[0].verdicts.len(), 1);
        memory.kept(report);
        assert!(memory.news(now(&[], "3")).is_none());
    }

    #[test]
    fn more_verdicts_than_one_report_holds_are_told_in_several() {
        let mut memory = ReportMemory::default();
        memory.kept(memory.news(now(&[], "1")).unwrap());
        for number in 0..250 {
            let envelope = format!("env_{number:032x}").parse().unwrap();
            let verdict = EnvelopeVerdict {
                envelope,
                code: "replay".into(),
                op: None,
                detail: String::new(),
                sealed: None,
            };
            memory.verdict(verdict);
        }
        let mut told = Vec::new();
        while let Some(report) = memory.news(now(&[], "2")) {
            told.push(report.pages[0].verdicts.len());
            memory.kept(report);
        }
        assert_eq!(told, [100, 100, 50]);
    }
}
