//! A person's day: coming in by a link, finding a host among a thousand, editing, pushing, signing, going. And a viewer's.

use evenkeel_hub::store::PersonRole;
use serde_json::{Value, json};

use super::keys::TestKey;
use super::stage::{HOST_SEED, Stage, item, told};
use evenkeel_testkit::browser::Browser;

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
    let stage = furnished().await;
    let browser = Browser::start().await;
    let link = stage.link(&browser, "alice", (PersonRole::Editor, "*", 10)).await;
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
    browser.sees("Valid: 1 guest").await;
    browser.fill("#message", "more cores").await;
    browser.click("button[value=push]").await;
    browser.until("location.pathname === '/console/hosts/pve1/documents/1'").await;
    browser.sees("wanted, not accepted yet").await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    // Loading again would be seen by this going.
    browser.script("window.stayed = true").await;
    let guest = json!({"guest": "lxc/101", "name": "web", "state": "as_declared",
        "declared": {"kind": "lxc", "cores": "4", "swap": "0"}, "actual": {"cores": "4"}});
    let told = json!({"generation": {"number": 1}, "guests": [guest]});
    stage.report("pve1", HOST_SEED + 1, (2, 1), told).await;
    browser.sees("in effect").await;
    assert_eq!(browser.script("return window.stayed").await, true);
    // Where every key is declared, though the host tells it of none: nothing differs.
    browser.open(&stage.url("/console/hosts/pve1/guests/lxc/101")).await;
    let origins = browser
        .script("return [...document.querySelectorAll('.pairs.wide tbody tr')].map((row) => row.cells[0].textContent + ' ' + row.cells[3].textContent)")
        .await;
    assert_eq!(origins, json!(["cores guests.toml:3", "kind guests.toml:2", "swap "]));
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
    browser.sees("Someone else pushed first").await;
    browser.sees("theirs").await;
    browser.sees("Your text was not pushed").await;
    let kept = browser.script("return document.getElementById('text-0').value").await;
    assert_eq!(kept, "[guest.101]\nkind = \"lxc\"\ncores = 8\n");
    assert_eq!(changed_lines(browser).await, json!(["3||−|cores = 4", "|3|+|cores = 6"]));
    // Going back in two clicks and a confirmation that shows what differs.
    browser.open(&stage.url("/console/hosts/pve1/documents")).await;
    browser.click("a[href$='/documents/1/restore']").await;
    browser.sees("Go back to generation 1?").await;
    browser.sees("cores").await;
    assert_eq!(changed_lines(browser).await, json!(["3||−|cores = 6", "|3|+|cores = 4"]));
    // Somebody is faster here too: nothing goes back, and what they changed is shown with what going back now means.
    let theirs = theirs.replace("seen: '1'", "seen: '2'").replace("cores = 6", "cores = 5");
    let pushed = browser.later(&theirs).await;
    assert!(pushed.as_str().unwrap().ends_with("/documents/3"), "{pushed}");
    browser.click("button[value=push]").await;
    browser.sees("Someone else pushed first").await;
    let lines = ["3||−|cores = 6", "|3|+|cores = 5", "3||−|cores = 5", "|3|+|cores = 4"];
    assert_eq!(changed_lines(browser).await, json!(lines));
    browser.click("button[value=push]").await;
    browser.until("location.pathname === '/console/hosts/pve1/documents/4'").await;
    browser.sees("back to generation 1").await;
    // Any two generations, line by line.
    browser.open(&stage.url("/console/hosts/pve1/documents/4")).await;
    browser.script("document.getElementById('from').value = '2'").await;
    browser.click("form.filter button").await;
    browser.until("location.search === '?from=2'").await;
    assert_eq!(changed_lines(browser).await, json!(["3||−|cores = 6", "|3|+|cores = 4"]));
}

/// Every line that differs: its number before and after, its sign, its text.
async fn changed_lines(browser: &Browser) -> Value {
    browser
        .script(
            "return [...document.querySelectorAll('.lines .added, .lines .removed')]\
             .map((row) => [...row.cells].map((cell) => cell.textContent).join('|'))",
        )
        .await
}

async fn signs(stage: &Stage, browser: &Browser) {
    browser.open(&stage.url("/console/approvals")).await;
    browser.sees("No item waits for a signature").await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    let waits = item("pve1", HOST_SEED + 1, "billing");
    let (pending, approval) = told(&waits, HOST_SEED + 1);
    stage.report("pve1", HOST_SEED + 1, (3, 2), json!({"pending": [pending]})).await;
    browser.sees("local-lvm:vm-110-disk-1").await;
    let text = browser.text().await;
    assert!(text.contains("512.0 GiB") || text.contains("512 GiB"), "{text}");
    assert!(text.contains("To back it up first"), "{text}");
    let short: String = pending["id"].as_str().unwrap().chars().take(16).collect();
    assert!(text.contains(&format!("evenkeel approve {short} --hub --key KEY")), "{text}");
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
    let stage = furnished().await;
    let browser = Browser::start().await;
    let alice = stage.link(&browser, "alice", (PersonRole::Editor, "*", 10)).await;
    browser.open(&alice).await;
    browser.until("location.pathname === '/console/fleet'").await;
    browser.open(&stage.url("/console/hosts/pve1/edit")).await;
    browser.fill("#text-0", GOOD).await;
    browser.click("button[value=push]").await;
    browser.until("location.pathname === '/console/hosts/pve1/documents/1'").await;
    let eve = stage.link(&browser, "eve", (PersonRole::Viewer, "pve*", 11)).await;
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
    browser.open(&stage.url("/console/accounts")).await;
    browser.sees("Not allowed").await;
    browser.open(&stage.url("/console/fleet")).await;
    let forged = "const csrf = document.querySelector('[name=csrf]').value; const done = arguments[arguments.length - 1];\
         const body = new URLSearchParams({csrf, as: 'push', seen: '1', 'name-0': 'a.toml', 'text-0': ''});\
         fetch('/console/hosts/pve1/edit', {method: 'POST', body}).then((answer) => done(answer.status));";
    assert_eq!(browser.later(forged).await, 403);
    browser.open(&stage.url("/console/hosts/node-0001")).await;
    browser.sees("Not found").await;
    // What is not live says so.
    browser.command("Network.setBlockedURLs", json!({"urls": ["*/v1/events*"]})).await;
    browser.open(&stage.url("/console/fleet")).await;
    browser.until("document.getElementById('live').textContent.startsWith('not live')").await;
    browser.until("document.getElementById('live').className === 'live off'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_hub_began_anew_is_live_again_and_up_to_date() {
    let stage = Stage::new().await;
    let browser = Browser::start().await;
    stage.host("pve1", HOST_SEED).await;
    let guest = |state| json!({"guests": [{"guest": "lxc/101", "name": "web", "state": state}]});
    stage.report("pve1", HOST_SEED, (1, 0), guest("as_declared")).await;
    browser.open(&stage.link(&browser, "alice", (PersonRole::Viewer, "*", 10)).await).await;
    browser.until("location.pathname === '/console/fleet'").await;
    browser.open(&stage.url("/console/hosts/pve1")).await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    browser.script("window.stayed = true").await;
    let stage = stage.restarted().await;
    stage.report("pve1", HOST_SEED, (2, 1), guest("failed")).await;
    // The hub that is new knows nothing of what this page heard, says so, and the page looks at everything.
    browser.until("document.querySelector('#guests .state').textContent === 'failed'").await;
    browser.until("document.getElementById('live').textContent === 'live'").await;
    assert_eq!(browser.script("return window.stayed").await, true);
    // A page is live from where it was read: what happens before its stream is open is not lost.
    browser.command("Network.setBlockedURLs", json!({"urls": ["*/v1/events*"]})).await;
    browser.open(&stage.url("/console/hosts/pve1")).await;
    browser.until("document.getElementById('live').textContent.startsWith('not live')").await;
    browser.script("window.stayed = true").await;
    stage.report("pve1", HOST_SEED, (3, 2), guest("drifted")).await;
    browser.command("Network.setBlockedURLs", json!({"urls": []})).await;
    browser.until("document.querySelector('#guests .state').textContent === 'drifted'").await;
    assert_eq!(browser.script("return window.stayed").await, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_labels_hosts_and_manages_accounts() {
    let stage = Stage::new().await;
    let browser = Browser::start().await;
    stage.host("pve1", HOST_SEED).await;
    browser.open(&stage.link(&browser, "root", (PersonRole::Admin, "*", 10)).await).await;
    browser.until("location.pathname === '/console/fleet'").await;
    browser.open(&stage.url("/console/hosts/pve1")).await;
    browser.click("details.change summary").await;
    browser.fill("#labels", "site=berlin, rack=a1").await;
    browser.click("form[action$='/labels'] button").await;
    browser.sees("rack=a1").await;
    browser.open(&stage.url("/console/fleet?label=site%3Dberlin")).await;
    browser.until("document.querySelectorAll('tr[data-row]').length === 1").await;

    browser.open(&stage.url("/console/fleet")).await;
    browser.click("#add-host summary").await;
    browser.fill("#host", "pve2").await;
    browser.click("#add-host button").await;
    browser.sees("A token for pve2").await;
    browser
        .until("/^evke_[0-9a-f]{64}$/.test(document.getElementById('enrol-token').textContent)")
        .await;

    browser.click("nav a[href='/console/accounts']").await;
    browser.sees("Make an account").await;
    // A private key stays in the browser.
    browser.fill("#name", "bob").await;
    browser.fill("#scope", "pve*").await;
    browser.fill("#key", "-----BEGIN OPENSSH PRIVATE KEY-----").await;
    browser.click("#new button").await;
    browser.until("document.getElementById('key').validationMessage.includes('private key')").await;
    assert_eq!(browser.script("return document.getElementById('key').value").await, "");
    browser.fill("#key", "ssh-ed25519 no").await;
    browser.click("#new button").await;
    browser.sees("the key is not taken").await;
    assert_eq!(browser.script("return document.getElementById('name').value").await, "bob");
    let key = TestKey::new(33).account_key();
    browser.fill("#key", &key.key_line).await;
    browser.click("#new button").await;
    browser.sees(&key.fingerprint).await;
    let another = TestKey::new(34).account_key();
    let of_bob = "form[action='/console/accounts/bob/keys']";
    browser
        .script(&format!("document.querySelector(\"{of_bob}\").closest('details').open = true"))
        .await;
    browser.fill(&format!("{of_bob} input[name=key]"), &another.key_line).await;
    browser.click(&format!("{of_bob} button")).await;
    browser.sees(&another.fingerprint).await;
    // The last admin stays, and is told why.
    remove(&browser, "root").await;
    browser.sees("root is the last admin of the whole hub").await;
    remove(&browser, "bob").await;
    browser.until("!document.body.innerText.includes('bob')").await;
    browser.open(&stage.url("/console/audit")).await;
    browser.sees("account.remove").await;
}

async fn remove(browser: &Browser, name: &str) {
    let form = format!("form[action='/console/accounts/{name}/remove']");
    browser
        .script(&format!("document.querySelector(\"{form}\").closest('details').open = true"))
        .await;
    browser.click(&format!("{form} button")).await;
}
