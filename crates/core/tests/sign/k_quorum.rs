//! How many must sign, and who counts: a table of short stories, each a line.
//!
//! A rule is `2` (every act takes two), `destroy=2`, `lxc=2`, `tag:prod=2`, `vmids:100-199=3`; with `!` the requester does
//! not count. A step is `who,who:STATEMENT=outcome`: these keys sign that statement in one envelope, and the outcome is the
//! number of signatures that are kept, `ok`, `replay` or a reason code. `A` and `B` are two statements of one item, `other`
//! is about another guest, `early` begins in an hour, `short` lives a minute. `@60` lets a minute pass, `-bob` takes bob out
//! by a rotation, `done:A` executes A, `deny:who=outcome` denies the item, `+tag:prod` gives the guest a tag.

use evenkeel_core::model::reason::ReasonCode;
use evenkeel_core::sign::clock::ClockReading;
use evenkeel_core::sign::{
    ApprovalRules, Collected, DenialStatement, Envelope, JudgedBy, Lineage, Namespace, Nonce,
    Occasion, OpResult, PayloadHash, PendingItem, Role, RotationAuthority, STATEMENT_LIFE_MAX_S,
    SignerCount, SignerName, SpentNonces, SpentOn, Statement, StatementLimits, TrustVersion,
    TrustedSigners, Validity, Window, collect, rotate,
};

use super::t_rotation::following;
use evenkeel_testkit::signing_keys::{
    Key, NOW, act, ed, host, item_id, sealed, sealed_text, statement,
};

/// Story, rules, requester, steps.
const STORIES: &[(&str, &str, &str, &str)] = &[
    // How many.
    ("without a rule one signature is enough", "", "", "alice:A=ok"),
    ("one of two is kept, the second allows", "2", "", "alice:A=1 bob:A=ok"),
    ("the order does not matter", "2", "", "bob:A=1 alice:A=ok"),
    ("two in one envelope are enough", "2", "", "alice,bob:A=ok"),
    ("more than enough is enough", "2", "", "alice,bob,carol:A=ok"),
    ("three of three", "3", "", "alice:A=1 bob:A=2 carol:A=ok"),
    ("two at once and one later", "3", "", "alice,bob:A=2 carol:A=ok"),
    ("one and then two at once", "3", "", "carol:A=1 alice,bob:A=ok"),
    ("envelopes that overlap", "3", "", "alice,bob:A=2 bob,carol:A=ok"),
    ("a whole envelope needs nothing that is kept", "2", "", "alice:A=1 bob,carol:A=ok"),
    ("a rule of one is no rule", "1", "", "alice:A=ok"),
    ("as many as an envelope holds", "8", "", "alice:A=1 bob:A=2 carol:A=3"),
    // One key twice.
    ("one key twice is one signer", "2", "", "alice:A=1 alice:A=1"),
    ("one key three times is one signer", "2", "", "alice:A=1 alice:A=1 alice:A=1 bob:A=ok"),
    ("one key twice of three", "3", "", "alice:A=1 bob:A=2 alice:A=2 bob:A=2 carol:A=ok"),
    ("one key twice in one envelope", "2", "", "alice,alice:A=envelope"),
    ("a key that comes again beside another", "3", "", "alice:A=1 alice,bob:A=2 carol:A=ok"),
    // Who does not sign acts.
    (
        "a stranger is nobody",
        "2",
        "",
        "mallory:A=unknown_signer alice:A=1 mallory:A=unknown_signer",
    ),
    (
        "a stranger spoils the envelope and not what is kept",
        "2",
        "",
        "alice:A=1 bob,mallory:A=unknown_signer bob:A=ok",
    ),
    ("a recovery key is no second", "2", "", "alice:A=1 vault:A=role_denied bob:A=ok"),
    ("a recovery key beside an operational one", "2", "", "alice,vault:A=role_denied"),
    ("an author is no second", "2", "", "alice:A=1 pen:A=role_denied"),
    // Mixed statements.
    ("two statements are not added up", "2", "", "alice:A=1 bob:B=binding_mismatch"),
    ("two statements, and then the same", "2", "", "alice:A=1 bob:B=binding_mismatch bob:A=ok"),
    ("the first statement stays", "3", "", "alice:A=1 bob:A=2 carol:B=binding_mismatch carol:A=ok"),
    ("another statement with enough by itself", "2", "", "alice:A=1 bob,carol:B=ok"),
    ("another guest's statement", "2", "", "alice:other=binding_mismatch bob:A=1"),
    (
        "another guest's statement as the second",
        "2",
        "",
        "alice:A=1 bob:other=binding_mismatch bob:A=ok",
    ),
    ("another guest's statement with enough", "2", "", "alice,bob:other=binding_mismatch"),
    // Time.
    ("one that is not valid yet is not kept", "2", "", "alice:early=not_yet_valid"),
    ("what is kept ends with its window", "2", "", "alice:short=1 @61 bob:short=expired"),
    ("what has ended makes room for another", "2", "", "alice:short=1 @61 bob:A=1 alice:A=ok"),
    ("the last second counts", "2", "", "alice:short=1 @59 bob:short=ok"),
    ("an hour later the usual window is over", "2", "", "alice:A=1 @3600 bob:A=expired"),
    (
        "a key whose time is over does not count any more",
        "2",
        "",
        "dan:A=1 @100 bob:A=1 alice:A=ok",
    ),
    ("a key that signs after its time", "2", "", "alice:A=1 @100 dan:A=key_revoked bob:A=ok"),
    (
        "expiry of one of two takes both out that were kept together",
        "3",
        "",
        "alice:A=1 dan:A=2 @100 bob:A=1 alice:A=2 carol:A=ok",
    ),
    ("all within the time of the short key", "2", "", "dan:A=1 @99 bob:A=ok"),
    // Revoked between.
    ("a rotation voids what is kept", "2", "", "alice:A=1 -carol bob:A=trust_version"),
    ("the key that is kept is revoked", "2", "", "alice:A=1 -alice bob:A=trust_version"),
    ("the key that comes is revoked", "2", "", "alice:A=1 -bob bob:A=key_revoked"),
    ("after a rotation both sign anew", "2", "", "alice:A=1 -carol alice:new=1 bob:new=ok"),
    (
        "what was kept before a rotation does not stand in the way",
        "2",
        "",
        "alice:A=1 -alice bob:new=1 carol:new=ok",
    ),
    ("a revoked key does not sign anew", "2", "", "-bob alice:new=1 bob:new=key_revoked"),
    // Replay.
    ("executed once", "2", "", "alice,bob:A=ok done:A alice,bob:A=replay"),
    ("a single signature of what was executed", "2", "", "alice:A=1 bob:A=ok done:A bob:A=replay"),
    (
        "another statement with a spent nonce",
        "2",
        "",
        "alice,bob:A=ok done:A alice,bob:clash=nonce_conflict",
    ),
    (
        "what is kept over a spent nonce counts for nothing",
        "2",
        "",
        "alice:A=1 done:A bob:A=replay",
    ),
    // Which acts.
    ("a rule about this act", "destroy=2", "", "alice:A=1 bob:A=ok"),
    ("a rule about another act", "rollback=2", "", "alice:A=ok"),
    ("a rule about this kind", "qemu=2", "", "alice:A=1 bob:A=ok"),
    ("a rule about the other kind", "lxc=2", "", "alice:A=ok"),
    ("a rule about this number", "vmids:100-199=2", "", "alice:A=1 bob:A=ok"),
    ("a rule about other numbers", "vmids:200-299, 102=2", "", "alice:A=ok"),
    ("a rule about a tag it has not", "tag:prod=2", "", "alice:A=ok"),
    ("a rule about a tag it has", "tag:prod=2", "", "+tag:prod alice:A=1 bob:A=ok"),
    (
        "a tag that comes in between",
        "tag:prod=2",
        "",
        "+tag:test alice:A=ok +tag:prod alice:A=1 bob:A=ok",
    ),
    ("the strictest that fits counts", "2;destroy=3;lxc=8", "", "alice:A=1 bob:A=2 carol:A=ok"),
    ("the order of rules does not matter", "lxc=8;destroy=3;1", "", "alice,bob:A=2 carol:A=ok"),
    (
        "no weaker rule takes away from a stricter one",
        "3;destroy=1",
        "",
        "alice,bob:A=2 carol:A=ok",
    ),
    // Who asked.
    ("the requester counts unless a rule says otherwise", "2", "alice", "alice:A=1 bob:A=ok"),
    ("the requester does not count", "2!", "alice", "alice:A=0 bob:A=1 carol:A=ok"),
    ("the requester as the second", "2!", "alice", "bob:A=1 alice:A=1 carol:A=ok"),
    ("the requester alone, where one is enough", "1!", "alice", "alice:A=0 bob:A=ok"),
    ("another requester", "2!", "carol", "alice:A=1 bob:A=ok"),
    ("nobody asked: it is declared", "2!", "", "alice:A=1 bob:A=ok"),
    ("all three, the requester among them", "3!", "alice", "alice,bob,carol:A=2 dan:A=ok"),
    ("one rule that excludes is enough", "2;destroy=1!", "bob", "alice:A=1 bob:A=1 carol:A=ok"),
    ("the rule that excludes is about other acts", "2;rollback=2!", "bob", "alice:A=1 bob:A=ok"),
    // Denials.
    ("a denial ends the item", "2", "", "deny:alice=ok alice,bob:A=not_pending"),
    ("a denial after one signature", "2", "", "alice:A=1 deny:bob=ok bob:A=not_pending"),
    ("a denial by who signed", "2", "", "alice:A=1 deny:alice=ok bob:A=not_pending"),
    ("a denial by a stranger is none", "2", "", "alice:A=1 deny:mallory=unknown_signer bob:A=ok"),
    ("a denial by the recovery key is none", "2", "", "alice:A=1 deny:vault=role_denied bob:A=ok"),
    ("a denial by an author is none", "2", "", "deny:pen=role_denied alice:A=1"),
    ("a denial by a revoked key is none", "2", "", "-bob deny:bob=key_revoked"),
    ("a denial by a key whose time is over is none", "2", "", "@100 deny:dan=key_revoked"),
    ("a denial twice", "2", "", "deny:alice=ok deny:bob=not_pending"),
    ("the requester may deny", "2!", "alice", "bob:A=1 deny:alice=ok carol:A=not_pending"),
    ("a denial where one signature is enough", "", "", "deny:alice=ok alice:A=not_pending"),
];

struct Story {
    rules: ApprovalRules,
    requester: Option<SignerName>,
    trust: TrustedSigners,
    tags: Vec<String>,
    spent: SpentNonces,
    kept: Option<String>,
    is_open: bool,
    now_s: u64,
}

fn key(name: &str) -> Key {
    let names = ["alice", "bob", "carol", "dan", "vault", "pen", "mallory"];
    let place = names.iter().position(|known| *known == name).unwrap();
    ed(40 + u8::try_from(place).unwrap())
}

fn trust() -> TrustedSigners {
    let mut signers = Vec::new();
    for name in ["alice", "bob", "carol", "dan", "vault", "pen"] {
        let role = match name {
            "vault" => Role::Recovery,
            "pen" => Role::Author,
            _ => Role::Operational,
        };
        let mut signer = key(name).signer(name, role);
        if name == "dan" {
            signer.validity = Validity { from: NOW, until: NOW.plus(100) };
        }
        signers.push(signer);
    }
    TrustedSigners::genesis(TrustVersion(1), signers).unwrap()
}

/// The rules, as agent.toml says them.
fn rules(text: &str) -> ApprovalRules {
    let rule = |text: &str| {
        let (scope, demand) = text.rsplit_once('=').unwrap_or(("", text));
        let (signers, counts) = match demand.strip_suffix('!') {
            Some(signers) => (signers, false),
            None => (demand, true),
        };
        let scope = match scope.split_once(':') {
            Some((name, value)) => format!("\"{name}\": \"{value}\", "),
            None if scope.is_empty() => String::new(),
            None if ["lxc", "qemu"].contains(&scope) => format!("\"kind\": \"{scope}\", "),
            None => format!("\"op\": \"{scope}\", "),
        };
        format!("{{ {scope}\"signers\": {signers}, \"requester_counts\": {counts} }}")
    };
    let rules: Vec<String> = text.split(';').filter(|text| !text.is_empty()).map(rule).collect();
    serde_json::from_str(&format!("[{}]", rules.join(", "))).unwrap()
}

impl Story {
    fn begin(with: &str, requester: &str) -> Self {
        Self {
            rules: rules(with),
            requester: (!requester.is_empty()).then(|| requester.parse().unwrap()),
            trust: trust(),
            tags: Vec::new(),
            spent: SpentNonces::default(),
            kept: None,
            is_open: true,
            now_s: 0,
        }
    }

    fn clock(&self) -> ClockReading {
        let now = NOW.plus(self.now_s);
        ClockReading { now, mark: now, doubt: None }
    }

    fn statement(&self, name: &str) -> Statement {
        let nonce = |byte| Nonce::from_random([byte; 16]).unwrap();
        let usual = statement();
        let window = |from, until| Window::new(NOW.plus(from), NOW.plus(until)).unwrap();
        match name {
            "A" => usual,
            "B" => Statement { nonce: nonce(8), ..usual },
            "clash" => Statement { reason: "another reason".to_owned(), ..usual },
            "other" => Statement { guest: "qemu/102".parse().unwrap(), nonce: nonce(7), ..usual },
            "early" => Statement { window: window(3600, 7200), nonce: nonce(6), ..usual },
            "short" => Statement { window: window(0, 60), nonce: nonce(5), ..usual },
            "new" => Statement { trust_version: self.trust.version(), nonce: nonce(4), ..usual },
            other => panic!("no statement is called {other}"),
        }
    }

    fn comes(&mut self, who: &[&str], what: &str) -> String {
        let keys: Vec<Key> = who.iter().map(|name| key(name)).collect();
        let keys: Vec<&Key> = keys.iter().collect();
        let payload = self.statement(what).to_bytes().unwrap();
        let mut distinct = who.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < who.len() {
            // No tool of ours seals such an envelope.
            let armour = keys[0].sign(Namespace::Op, &payload);
            let refused = Envelope::seal(&payload, &[&armour, &armour]).unwrap_err();
            return refused.reason.to_string();
        }
        if !self.is_open {
            return ReasonCode::NotPending.to_string();
        }
        let coming = sealed_text(&payload, &keys);
        let mut asked = act();
        let tags = self.tags.iter().map(String::as_str);
        asked.demand = self.rules.demand(asked.op, asked.guest, tags, self.requester.as_ref());
        let clock = self.clock();
        let limits = StatementLimits::default();
        let by = JudgedBy { trust: &self.trust, clock: &clock, spent: &self.spent, limits };
        let kept = self.kept.as_deref().map(str::as_bytes);
        match collect(kept, coming.as_bytes(), &asked, by) {
            Collected::Enough(_) => "ok".to_owned(),
            Collected::Kept { text, missing } => {
                self.kept = Some(text);
                missing.detail.split(' ').next().unwrap().to_owned()
            }
            Collected::Replay { .. } => "replay".to_owned(),
            Collected::Refused(refusal) => refusal.reason.to_string(),
        }
    }

    fn denies(&mut self, who: &str) -> String {
        let denial = DenialStatement {
            host: host(),
            item: item_id(),
            window: Window::new(NOW, NOW.plus(3600)).unwrap(),
            trust_version: self.trust.version(),
            reason: "not this one".to_owned(),
        };
        let envelope = sealed(&denial.to_bytes().unwrap(), Namespace::Deny, &[&key(who)]);
        let clock = self.clock();
        let limits = StatementLimits::default();
        match DenialStatement::judge(&envelope, &host(), &self.trust, &clock, limits) {
            Err(refusal) => refusal.reason.to_string(),
            Ok(_) if !self.is_open => ReasonCode::NotPending.to_string(),
            Ok((by, read)) => {
                assert_eq!((by.len(), &read), (1, &denial));
                self.is_open = false;
                self.kept = None;
                "ok".to_owned()
            }
        }
    }

    fn step(&mut self, step: &str) -> (String, String) {
        let done = |expected: &str| (expected.to_owned(), expected.to_owned());
        if let Some(seconds) = step.strip_prefix('@') {
            self.now_s += seconds.parse::<u64>().unwrap();
            return done("passed");
        }
        if let Some(tag) = step.strip_prefix("+tag:") {
            self.tags.push(tag.to_owned());
            return done("tagged");
        }
        if let Some(name) = step.strip_prefix('-') {
            // As after a rotation: the number is the next, and the key that went is remembered.
            let gone = key(name).public();
            let left = self.trust.signers().filter(|signer| signer.key != gone).cloned().collect();
            let change = following(&self.trust, RotationAuthority::Recovery, left);
            let sealed = sealed(&change.to_bytes().unwrap(), Namespace::Recover, &[&key("vault")]);
            let by = RotationAuthority::Recovery;
            let life = STATEMENT_LIFE_MAX_S;
            let clock = self.clock();
            self.trust = rotate(&sealed, by, &self.trust, &host(), &clock, life).unwrap().trust;
            return done("rotated");
        }
        if let Some(what) = step.strip_prefix("done:") {
            let statement = self.statement(what);
            let spent = SpentOn {
                payload: PayloadHash::of(&statement.to_bytes().unwrap()),
                op: "op_01HF7YAT020000000000000002".parse().unwrap(),
                result: OpResult::Succeeded,
                expires_at: statement.window.expires_at(),
            };
            self.spent.spend(statement.nonce, spent).unwrap();
            return done("done");
        }
        let (act, expected) = step.split_once('=').unwrap();
        let (who, what) = act.split_once(':').unwrap();
        let came = if who == "deny" {
            self.denies(what)
        } else {
            self.comes(&who.split(',').collect::<Vec<_>>(), what)
        };
        (came, expected.to_owned())
    }
}

#[test]
fn z08_as_many_different_keys_as_the_strictest_rule_asks_over_one_statement_and_no_fewer() {
    assert!(STORIES.len() >= 60, "{} stories", STORIES.len());
    for (name, rules, requester, steps) in STORIES {
        let mut story = Story::begin(rules, requester);
        for step in steps.split(' ') {
            let (came, expected) = story.step(step);
            assert_eq!(came, expected, "{name}: at `{step}` of `{steps}`");
        }
    }
}

/// A planned rotation by these keys, with or without new rules, where so many must sign.
fn rotates(
    signers: u64,
    by: &[&str],
    approve: Option<&str>,
) -> Result<Option<ApprovalRules>, ReasonCode> {
    let before = trust();
    let mut change =
        following(&before, RotationAuthority::Planned, before.signers().cloned().collect());
    change.signers.retain(|signer| signer.name.to_string() != "carol");
    change.approve = approve.map(rules);
    let keys: Vec<Key> = by.iter().map(|name| key(name)).collect();
    let keys: Vec<&Key> = keys.iter().collect();
    let sealed = sealed(&change.to_bytes().unwrap(), Namespace::Rotate, &keys);
    let signers = SignerCount::try_from(signers).unwrap();
    let occasion = Occasion::HandedIn { signers };
    let clock = ClockReading { now: NOW, mark: NOW, doubt: None };
    Lineage::new(before)
        .follow(
            &sealed,
            RotationAuthority::Planned,
            &host(),
            &clock,
            (STATEMENT_LIFE_MAX_S, occasion),
        )
        .map(|(rotated, _)| rotated.rotation.approve)
        .map_err(|refusal| refusal.reason)
}

#[test]
fn z08_a_rotation_takes_as_many_operational_keys_as_the_strictest_rule() {
    assert_eq!(rotates(2, &["alice"], None), Err(ReasonCode::PendingSignature));
    assert_eq!(rotates(2, &["alice", "bob"], None), Ok(None));
    // Who is about to go may sign, who is nobody does not count.
    assert_eq!(rotates(3, &["alice", "bob", "carol"], None), Ok(None));
    assert_eq!(rotates(2, &["alice", "vault"], None), Err(ReasonCode::RoleDenied));
    assert_eq!(rotates(2, &["alice", "mallory"], None), Err(ReasonCode::UnknownSigner));
    // Lower rules are part of what is signed, and take as many as the rules before them.
    assert_eq!(rotates(2, &["alice"], Some("1")), Err(ReasonCode::PendingSignature));
    assert_eq!(rotates(2, &["alice", "bob"], Some("1")), Ok(Some(rules("1"))));
    assert_eq!(rules("destroy=2;tag:prod=3!;1").of_rotations().get(), 3);
    assert_eq!(ApprovalRules::default().of_rotations(), SignerCount::ONE);
}

#[test]
fn z08_of_two_sets_of_rules_both_hold() {
    let kept = rules("destroy=3;tag:prod=2!");
    let file = rules("destroy=1!;lxc=4");
    let both = kept.with(&file);
    assert_eq!(both, rules("destroy=3!;tag:prod=2!;lxc=4"));
    assert_eq!(both, file.with(&kept));
    assert_eq!(both.with(&both), both);
    let nothing = ApprovalRules::default();
    assert_eq!(kept.with(&nothing), kept, "a file that says nothing lowers nothing");
    assert_eq!(nothing.with(&kept), kept);
}

#[test]
fn rules_that_could_not_hold_are_refused_with_the_reason() {
    for (text, why) in [
        (r#"[{"signers": 0}]"#, "from 1 to 8"),
        (r#"[{"signers": 9}]"#, "from 1 to 8"),
        (r#"[{"signers": 2, "who": "bob"}]"#, "unknown field"),
        (r#"[{"op": "destory", "signers": 2}]"#, "destory"),
        (r#"[{"op": "start", "signers": 2}]"#, "no signature"),
        (r#"[{"op": "destroy"}]"#, "signers"),
        (r#"[{"vmids": "", "signers": 2}]"#, "names no guest"),
        (r#"[{"signers": 2}, {"signers": 3}]"#, "the same acts"),
    ] {
        let error = serde_json::from_str::<ApprovalRules>(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let text = serde_json::to_string(&rules("tag:prod=2!;vmids:100-199=3")).unwrap();
    assert_eq!(
        serde_json::from_str::<ApprovalRules>(&text).unwrap(),
        rules("vmids:100-199=3;tag:prod=2!")
    );
}

#[test]
fn a_statement_that_has_signatures_is_that_of_its_item_or_is_not_signed_again() {
    let item = super::enrolment::item();
    let id = PendingItem::id(&item.to_bytes().unwrap());
    let nonce = Nonce::from_random([3; 16]).unwrap();
    let window = Window::new(NOW, NOW.plus(600)).unwrap();
    let good = item.statement(id, nonce, window, "why");
    assert!(item.is_approved_by(id, &good));
    let other = |change: fn(&mut Statement)| {
        let mut bent = good.clone();
        change(&mut bent);
        bent
    };
    for bent in [
        other(|bent| bent.guest = "qemu/102".parse().unwrap()),
        other(|bent| bent.item = item_id()),
        other(|bent| bent.trust_version = TrustVersion(9)),
        other(|bent| drop(bent.params.insert("purge".to_owned(), "1".to_owned()))),
    ] {
        assert!(!item.is_approved_by(id, &bent));
    }
}
