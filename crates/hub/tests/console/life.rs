//! A person's day: coming in by a link, finding a host among a thousand, editing, pushing, signing, going. And a viewer's.

use evenkeel_hub::store::PersonRole;
use serde_json::json;

use super::browser::Browser;
use super::stage::{HOST_SEED, Stage, item, told};

const GOOD: &str = "[guest.101]\nkind = \"lxc\"\ncores = 4\n";

async fn furnished() -> Stage {
    let stage = Stage::new().await;
    stage.crowd(1_000).await;
    for number in 1..=3_u8 {
        let host = format!("pve{number}");
        stage.host(&host, HOST_SEED + number).await;
        let guests = json!([{"guest": "lxc/101", "name": "web", "state": "as_declared"},
            {"guest": "qemu/110", "name": "billing", "state": "held"}]);
        stage.report(&host, HOST_SEED + number, (1, 0), json!({"guests": guests})).await;
    }
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editor_finds_edits_pushes_signs_and_sees_it_happen() {
    let (stage, browser) = (furnished().await, Browser::start().await);
    let link = stage.link("alice", PersonRole::Editor, "*", 10).await;
    browser.open(&link).await;
    browser.until("location.pathname === '/console/fleet'").await;
    assert_eq!(browser.script("return location.hash").await, "", "the code is gone");
    browser.sees("1003").await;
    // The link works once.
    browser.script("return document.cookie").await;
    finds(&browser).await;
    edits(&stage, &browser).await;
    loses_a_race(&stage, &browser).await;
    signs(&stage, &browser).await;
    browser.click("form[action='/console/logout'] button").await;
    browser.until("location.pathname === '/console'").await;
    browser.open(&stage.url("/console/fleet")).await;
    browser.sees("Not logged in").await;
    browser.open(&link).await;
    browser.sees("This link does not work any more").await;
}

async fn finds(browser: &Browser) {
    browser.keys("body", "/").await;
    browser.until("document.activeElement.id === 'text'").await;
    browser.keys("#text", "node-09").await;
    browser.until("location.search.includes('text=node-09')").await;
    browser.until("document.querySelectorAll('tr[data-row]').length === 50").await;
    browser.fill("#text", "site=berlin").await;
    browser.sees("of 333").await;
    browser.fill("#text", "pve").await;
    browser.until("document.querySelectorAll('tr[data-row]').length === 3").await;
    browser.script("document.activeElement.blur()").await;
    browser.keys("body", "jj").await;
    browser.until("document.activeElement.textContent === 'pve2'").await;
    browser.keys("body", "k").await;
    browser.until("document.activeElement.textContent === 'pve1'").await;
    browser.script("document.activeElement.click()").await;
    browser.until("location.pathname === '/console/hosts/pve1'").await;
    browser.click("#guests tbody tr a").await;
    browser.until("location.pathname === '/console/hosts/pve1/guests/lxc/101'").await;
    browser.sees("Declared and actual").await;
}

async fn edits(stage: &Stage, browser: &Browser) {
    browser.open(&stage.url("/console/hosts/pve1/documents")).await;
    browser.click("a.button.primary").await;
    browser.until("location.pathname === '/console/hosts/pve1/edit'").await;
    browser.fill("#text-0", "[guest.101]\nkind = \"lxc\"\ncoress = 4\n").await;
    browser.sees("the document has 1 mistake").await;
    browser.sees("^^^^^^").await;
    browser.fill("#text-0", GOOD).await;
    browser.sees("Can be read: 1 guest").await;
    browser.fill("#message", "more cores").await;
    browser.click("button[value=push]").await;
    browser.until("location.pathname === '/console/hosts/pve1/documents/1'").await;
    browser.sees("wanted, not taken yet").await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    // Loading again would be seen by this going.
    browser.script("window.stayed = true").await;
    stage.report("pve1", HOST_SEED + 1, (2, 1), json!({"generation": {"number": 1}})).await;
    browser.sees("in effect").await;
    assert_eq!(browser.script("return window.stayed").await, true);
}

async fn loses_a_race(stage: &Stage, browser: &Browser) {
    browser.open(&stage.url("/console/hosts/pve1/edit")).await;
    browser.fill("#text-0", "[guest.101]\nkind = \"lxc\"\ncores = 8\n").await;
    let theirs = "const body = new URLSearchParams({csrf: document.querySelector('[name=csrf]').value, as: 'push', \
         seen: '1', 'name-0': 'guests.toml', 'text-0': '[guest.101]\\nkind = \"lxc\"\\ncores = 6\\n', message: 'theirs'});\
         const done = arguments[arguments.length - 1];\
         fetch('/console/hosts/pve1/edit', {method: 'POST', body}).then((answer) => done(answer.url));";
    let pushed = browser.later(theirs).await;
    assert!(pushed.as_str().unwrap().ends_with("/documents/2"), "{pushed}");
    browser.click("button[value=push]").await;
    browser.sees("Somebody else was faster").await;
    browser.sees("theirs").await;
    browser.sees("Nothing of yours was pushed").await;
    let kept = browser.script("return document.getElementById('text-0').value").await;
    assert_eq!(kept, "[guest.101]\nkind = \"lxc\"\ncores = 8\n");
    // Going back in two clicks and a confirmation that shows what differs.
    browser.open(&stage.url("/console/hosts/pve1/documents")).await;
    browser.click("a[href$='/documents/1/restore']").await;
    browser.sees("Go back to generation 1?").await;
    browser.sees("cores").await;
    browser.click("button[value=push]").await;
    browser.until("location.pathname === '/console/hosts/pve1/documents/3'").await;
    browser.sees("back to generation 1").await;
}

async fn signs(stage: &Stage, browser: &Browser) {
    browser.open(&stage.url("/console/approvals")).await;
    browser.sees("Nothing waits for a signature").await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    let waits = item("pve1", HOST_SEED + 1, "billing");
    let (pending, approval) = told(&waits, HOST_SEED + 1);
    stage.report("pve1", HOST_SEED + 1, (3, 2), json!({"pending": [pending]})).await;
    browser.sees("local-lvm:vm-110-disk-1").await;
    let text = browser.text().await;
    assert!(text.contains("512.0 GiB") || text.contains("512 GiB"), "{text}");
    assert!(text.contains("Have it saved first"), "{text}");
    let short: String = pending["id"].as_str().unwrap().chars().take(12).collect();
    assert!(text.contains(&format!("evenkeel sign {short} --hub --key KEY")), "{text}");
    assert!(!text.to_lowercase().contains("verified"), "{text}");
    assert!(text.contains("never asks for a private key"), "{text}");
    browser.fill("#envelope", &approval).await;
    browser.click("form[action='/console/envelopes'] button").await;
    browser.until("location.pathname.startsWith('/console/envelopes/env_')").await;
    browser.sees("on its way").await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    let envelope = browser.path().await.rsplit('/').next().unwrap().to_owned();
    let verdict = json!({"envelope": envelope, "code": "allowed_signed", "op": "op_01JD0000000000000000000009", "detail": "signed by alice"});
    let id = pending["id"].clone();
    stage.report("pve1", HOST_SEED + 1, (4, 3), json!({"verdicts": [verdict], "pending_gone": [id], "gone": ["qemu/110"],
        "ops": [{"op": "op_01JD0000000000000000000009", "guest": "qemu/110", "kind": "destroy", "state": "succeeded", "signer": "alice"}]})).await;
    browser.sees("allowed signed").await;
    browser.open(&stage.url("/console/hosts/pve1")).await;
    browser.sees("destroy").await;
    let text = browser.text().await;
    assert!(text.contains("signed by alice") && !text.contains("billing"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_no_button_that_would_be_refused_and_is_refused_all_the_same() {
    let (stage, browser) = (furnished().await, Browser::start().await);
    let alice = stage.link("alice", PersonRole::Editor, "*", 10).await;
    browser.open(&alice).await;
    browser.until("location.pathname === '/console/fleet'").await;
    browser.open(&stage.url("/console/hosts/pve1/edit")).await;
    browser.fill("#text-0", GOOD).await;
    browser.click("button[value=push]").await;
    browser.until("location.pathname === '/console/hosts/pve1/documents/1'").await;
    let eve = stage.link("eve", PersonRole::Viewer, "pve*", 11).await;
    browser.open(&eve).await;
    browser.until("location.pathname === '/console/fleet'").await;
    browser.sees("eve").await;
    browser.sees("1–3 of 3").await;
    for path in [
        "/console/fleet",
        "/console/approvals",
        "/console/audit",
        "/console/hosts/pve1",
        "/console/hosts/pve1/documents",
        "/console/hosts/pve1/documents/1",
        "/console/hosts/pve1/guests/lxc/101",
    ] {
        browser.open(&stage.url(path)).await;
        let forms = browser
            .script("return [...document.querySelectorAll('form[method=post]')].map((form) => form.getAttribute('action'))")
            .await;
        assert_eq!(forms, json!(["/console/logout"]), "{path}");
        let links = browser.script("return [...document.links].map((link) => link.pathname).filter((path) => /edit|restore/.test(path))").await;
        assert_eq!(links, json!([]), "{path}");
    }
    let forged = "const csrf = document.querySelector('[name=csrf]').value; const done = arguments[arguments.length - 1];\
         const body = new URLSearchParams({csrf, as: 'push', seen: '1', 'name-0': 'a.toml', 'text-0': ''});\
         fetch('/console/hosts/pve1/edit', {method: 'POST', body}).then((answer) => done(answer.status));";
    assert_eq!(browser.later(forged).await, 403);
    browser.open(&stage.url("/console/hosts/node-0001")).await;
    browser.sees("Not found").await;
    // What is not live says so.
    browser.command("Network.setBlockedURLs", json!({"urls": ["*/v1/events"]})).await;
    browser.open(&stage.url("/console/fleet")).await;
    browser.until("document.getElementById('live').textContent.startsWith('not live')").await;
    browser.until("document.getElementById('live').className === 'live off'").await;
}
