//! A hub that puts terminal escapes and marks that turn the direction into every text of every answer.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use evenkeel_core::fleet::{GuestReport, HostReport};
use evenkeel_core::words::shown_text::steers;
use serde_json::Value;

use super::desk::{Behind, Desk, HubProcess};

/// Clears the screen, sets a title, moves the cursor, begins a line anew, turns the direction, hides.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}1A\r\u{202e}\u{2066}\u{200b}\u{7f}";

/// Texts that carry the conversation on, and those that are read by a strict reader: without them nothing is shown.
const KEPT: [&str; 8] =
    ["hub_id", "nonce", "token", "next", "payload", "signatures", "key", "name"];

/// A way to the hub that spoils what it answers.
fn spoil(listener: &TcpListener, hub: &str) {
    for client in listener.incoming() {
        let Ok(client) = client else { return };
        let hub = hub.to_owned();
        // A connection that breaks off ends with its thread.
        std::thread::spawn(move || carry(client, &hub).unwrap_or_default());
    }
}

fn carry(mut client: TcpStream, hub: &str) -> std::io::Result<()> {
    let (head, body) = message(&mut client)?;
    let mut server = TcpStream::connect(hub)?;
    let head = head.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    server.write_all(head.as_bytes())?;
    server.write_all(&body)?;
    let (head, body) = message(&mut server)?;
    let body = match serde_json::from_slice::<Value>(&body) {
        Ok(mut answer) => {
            spoiled(&mut answer, "");
            serde_json::to_vec(&answer).unwrap()
        }
        Err(_) => body,
    };
    let kept = head.lines().filter(|line| {
        let line = line.to_ascii_lowercase();
        !line.is_empty() && !line.starts_with("content-length") && !line.starts_with("connection")
    });
    let head: Vec<&str> = kept.collect();
    let head = head.join("\r\n");
    let length = body.len();
    write!(client, "{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")?;
    client.write_all(&body)
}

/// The head with its empty line, and the body, of one message.
fn message(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}

fn spoiled(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if !KEPT.contains(&name) => text.push_str(EVIL),
        Value::Array(items) => items.iter_mut().for_each(|item| spoiled(item, name)),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, field)| spoiled(field, name)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn z21_no_text_of_a_hub_steers_the_terminal_it_is_shown_on() {
    let desk = Desk::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let way = format!("http://{}", listener.local_addr().unwrap());
    let more = format!("--plain-http --public-url {way}");
    // What the hub prints is the address that people dial, which is the way.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let _hub = HubProcess::start_with(&desk, "hub", &address, &more);
    std::thread::spawn(move || spoil(&listener, &address));
    let behind = Behind::open(&desk.path("hub"));
    behind.enrol("pve1", &desk.key("host"));
    desk.run("hub account add alice --role admin --key alice.pub --state hub").ends_with(0);
    let guest = GuestReport {
        guest: "lxc/101".parse().unwrap(),
        name: format!("web{EVIL}"),
        problems: vec![format!("broken{EVIL}")],
        ..GuestReport::default()
    };
    let report = HostReport { guests: vec![guest], ..HostReport::default() };
    behind.report("pve1", &desk.key("host"), report);
    desk.write("d/web.toml", "[guest.101]\nkind = \"lxc\"\ncores = 2\n");
    let mut shown = 0;
    for line in [
        &format!("fleet login {way} --key alice")[..],
        "fleet hosts",
        "fleet push pve1 d --yes",
        "fleet status pve1",
        "fleet status nowhere",
        "fleet history pve1",
        "fleet diff pve1 d",
        "fleet diff pve1 --from 0 --to 1",
        "fleet rollback pve1 7 --yes",
        "fleet sign pve1 drf_1 --key alice --yes",
        "fleet pull pve1 --out pulled",
        "fleet pending",
        "fleet pending 0123456789abcdef",
        "fleet submit alice.pub",
        "fleet audit",
        "fleet console",
        "approve 0123456789abcdef --hub --key alice --yes",
        "fleet logout",
    ] {
        for line in [line.to_owned(), format!("{line} -o json")] {
            let output = desk.command(&line).output().unwrap();
            for stream in [output.stdout, output.stderr] {
                let text = String::from_utf8(stream).unwrap();
                let steering = |letter: char| letter != '\n' && steers(letter);
                assert!(!text.contains(steering), "{line}: {text:?}");
                shown += usize::from(text.contains("\\u{202e}"));
            }
        }
    }
    assert!(shown > 10, "its texts were shown {shown} times only");
}
