//! The whole way through the console: pushed in a real browser, brought about on three simulated nodes, a destroy signed by
//! the real `sign`, handed in on the page, and seen to happen without loading the page again.

use std::os::unix::fs::PermissionsExt as _;

use super::desk::{Desk, HubProcess};
use super::whole::{Running, enrol, started};
use evenkeel_testkit::browser::Browser;

const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];
const FEWER_CORES: &str = "[guest.100]\nkind = \"lxc\"\ncores = 2\nrun = \"stopped\"\n";
const GONE: &str = "[guest.100]\nkind = \"lxc\"\nstate = \"absent\"\n";

/// A node, and an agent that keeps it by what the hub says, signed or not.
fn host(desk: &Desk, hub: &HubProcess, name: &str) -> [Running; 2] {
    let (sim, told) = started(desk, "sim --listen 127.0.0.1:0 --guests 2 --plain-http -o json");
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    let here = desk.path(name).display().to_string();
    desk.write(&format!("{name}/token"), &text("token"));
    desk.write(&format!("{name}/agent.toml"), &format!(
        "host_id = \"{name}\"\ninterval = \"10s\"\n[pve]\nurl = \"{}\"\nnode = \"{}\"\ntoken_file = \"{here}/token\"\n\
         [desired]\nhub = {{ url = \"{}\", credential_file = \"{here}/credential\", fingerprint = \"{}\" }}\n\
         [policy]\ndesired_signed = false\n\
         [state]\ndir = \"{here}/state\"\n[trust]\nfile = \"{}\"\n",
        text("url"), text("node"), hub.url, hub.fingerprint, desk.path("trust.toml").display()
    ));
    for file in ["token", "agent.toml"] {
        let path = desk.path(&format!("{name}/{file}"));
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    enrol(desk, hub, name, &format!("{name}/agent.toml"));
    let agent = desk.command(&format!("run -c {name}/agent.toml --log error")).spawn().unwrap();
    [sim, Running(agent)]
}

/// Pushes a document as a person does.
async fn push(browser: &Browser, hub: &HubProcess, host: &str, text: &str) {
    browser.open(&format!("{}/console/hosts/{host}/edit", hub.url)).await;
    browser.fill("#text-0", text).await;
    browser.sees("Valid: 1 guest").await;
    browser.fill("#message", "from the console").await;
    browser.click("button[value=push]").await;
    browser.until("/documents\\/[0-9]+$/.test(location.pathname)").await;
}

async fn is_live(browser: &Browser) {
    browser.until("document.getElementById('live').textContent === 'live'").await;
    // Loading again would be seen by this going.
    browser.script("window.stayed = true").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hosts_converge_before_ones_eyes_and_a_signed_destroy_is_seen_to_happen() {
    let desk = Desk::new();
    let hub = HubProcess::start(&desk, "hub", "127.0.0.1:0");
    desk.run("hub account add alice --role editor --key alice.pub --state hub").ends_with(0);
    for (key, role) in [("alice", "operational"), ("host", "recovery")] {
        let line = format!("signers enrol {key}.pub --role {role} --name {key} --trust trust.toml");
        desk.run(&line).ends_with(0);
    }
    let hosts: Vec<[Running; 2]> = HOSTS.iter().map(|name| host(&desk, &hub, name)).collect();
    let pins =
        HOSTS.map(|name| format!("{name} {}", desk.read(&format!("{name}/state/host_key.pub"))));
    desk.write("home/.config/evenkeel/known_hosts", &pins.concat());
    let login = format!("fleet login {} --key alice --fingerprint {}", hub.url, hub.fingerprint);
    desk.run(&login).ends_with(0);
    let browser = Browser::start().await;
    browser.open(&format!("{}/console", hub.url)).await;
    browser.until("document.getElementById('enter')").await;
    let word = browser.script("return document.getElementById('enter').dataset.browser").await;
    let line = format!("fleet console --browser {} -o json", word.as_str().unwrap());
    let link = desk.run(&line).ends_with(0).json();
    browser.open(link["link"].as_str().unwrap()).await;
    browser.until("location.pathname === '/console/fleet'").await;
    for name in HOSTS {
        push(&browser, &hub, name, FEWER_CORES).await;
    }
    browser.open(&format!("{}/console/fleet", hub.url)).await;
    is_live(&browser).await;
    let all = "[...document.querySelectorAll('tr[data-row]')].filter((row) => /as declared/.test(row.cells[0].innerText) \
         && /^1$/.test(row.cells[3].innerText.trim())).length === 3";
    browser.until(all).await;
    assert_eq!(browser.script("return window.stayed").await, true);
    browser.open(&format!("{}/console/hosts/pve1/guests/lxc/100", hub.url)).await;
    browser.sees("cores").await;
    browser.sees("set config").await;
    signed(&desk, &hub, &browser).await;
    drop(hosts);
}

async fn signed(desk: &Desk, hub: &HubProcess, browser: &Browser) {
    push(browser, hub, "pve1", GONE).await;
    browser.open(&format!("{}/console/approvals", hub.url)).await;
    browser.until("document.querySelector('article.card pre.command')").await;
    browser.sees("Data that is lost").await;
    let command = browser
        .script("return document.querySelector('article.card pre.command').textContent")
        .await;
    let command = command.as_str().unwrap().trim().to_owned();
    assert_eq!(command.lines().count(), 1, "what is pasted is one line: {command}");
    // The same with a file between, which a person may paste into the page.
    let line = command.strip_prefix("evenkeel approve ").unwrap().replace("KEY", "alice");
    desk.run(&format!("sign {line} --out approval.json --yes")).ends_with(0);
    browser.fill("#envelope", &desk.read("approval.json")).await;
    browser.click("form[action='/console/envelopes'] button").await;
    browser.until("location.pathname.startsWith('/console/envelopes/env_')").await;
    is_live(browser).await;
    browser.sees("allowed signed").await;
    browser.click("#region h1 a").await;
    browser.until("location.pathname === '/console/hosts/pve1'").await;
    is_live(browser).await;
    browser.until("[...document.querySelectorAll('#ops li .line')].some((line) => /succeeded/.test(line.innerText) && /destroy/.test(line.innerText) && /alice/.test(line.innerText))").await;
    assert_eq!(browser.script("return window.stayed").await, true);
}
