//! A browser: one chromedriver and one Chromium, which end with their value. `WebDriver` is JSON over HTTP on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// How long anything that must come may take on a busy machine: a page, an answer of the driver, a script.
const WAIT_MAX: Duration = Duration::from_mins(2);
/// What the driver says on stdout before the port it was given.
const DRIVER_READY: &str = "started successfully on port ";

/// Headless, and silent on the network but for what the pages ask for.
const ARGUMENTS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
];

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    client: reqwest::Client,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A driver that is killed leaves its browser behind: the session is ended first.
        let _ = self.end_session();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// How a page is looked at.
#[derive(Clone, Copy)]
pub struct Look {
    pub name: &'static str,
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
}

impl Browser {
    pub async fn start() -> Self {
        // reqwest is built without a provider of TLS; nothing here is dialled by TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is not installed: apt-get install chromium chromium-driver");
        let port = announced_port(driver.stdout.take().unwrap());
        let profile = tempfile::tempdir().unwrap();
        let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let client = reqwest::Client::builder().no_proxy().timeout(2 * WAIT_MAX).build().unwrap();
        let base = format!("http://127.0.0.1:{port}");
        let began = Instant::now();
        while client.get(format!("{base}/status")).send().await.is_err() {
            assert!(began.elapsed() < WAIT_MAX, "chromedriver never answered");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let wait_max_ms = u64::try_from(WAIT_MAX.as_millis()).unwrap();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            // A hub that makes its own certificate is pinned by people, not by browsers.
            "acceptInsecureCerts": true,
            "timeouts": {"script": wait_max_ms, "pageLoad": wait_max_ms},
            "goog:chromeOptions": {"args": arguments, "binary": "/usr/bin/chromium"},
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }}});
        let made = ask(&client, &format!("{base}/session"), &wanted).await.unwrap();
        let session = format!("{base}/session/{}", made["sessionId"].as_str().unwrap());
        Self { driver, port, session, client, _profile: profile }
    }

    /// Ends the session and waits until it is answered, which is once the browser is gone. Nothing async may wait in a drop.
    fn end_session(&self) -> std::io::Result<()> {
        let mut driver = TcpStream::connect(("127.0.0.1", self.port))?;
        driver.set_read_timeout(Some(WAIT_MAX))?;
        let (_, path) = self.session.split_once(&self.port.to_string()).expect("our own address");
        write!(driver, "DELETE {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")?;
        driver.read_exact(&mut [0])
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, String> {
        ask(&self.client, &format!("{}/{path}", self.session), &body).await
    }

    /// Opens a page and waits until it is loaded.
    pub async fn open(&self, url: &str) {
        self.post("url", json!({"url": url})).await.unwrap();
    }

    /// Runs a function body in the page, and answers with what it returns.
    pub async fn script(&self, body: &str) -> Value {
        self.post("execute/sync", json!({"script": body, "args": []})).await.unwrap()
    }

    /// The same for one that answers later, by its last argument.
    pub async fn later(&self, body: &str) -> Value {
        self.post("execute/async", json!({"script": body, "args": []})).await.unwrap()
    }

    /// Waits until an expression holds in the page.
    pub async fn until(&self, expression: &str) {
        let began = Instant::now();
        loop {
            let body = format!("return Boolean({expression})");
            let held = self.post("execute/sync", json!({"script": body, "args": []})).await;
            if held == Ok(Value::Bool(true)) {
                return;
            }
            if began.elapsed() > WAIT_MAX {
                let text =
                    self.script("return location.href + '\\n' + document.body.innerText").await;
                panic!("it never was so: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page holds a text.
    pub async fn sees(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", Value::from(text))).await;
    }

    pub async fn text(&self) -> String {
        let text = self.script("return document.body.innerText").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    async fn element(&self, css: &str) -> String {
        let found = self.post("element", json!({"using": "css selector", "value": css})).await;
        let found = found.unwrap_or_else(|error| panic!("no {css}: {error}"));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    pub async fn click(&self, css: &str) {
        let element = self.element(css).await;
        self.post(&format!("element/{element}/click"), json!({})).await.unwrap();
    }

    /// Types into a field, after what is in it; keys as `WebDriver` names them.
    pub async fn keys(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        let body = json!({"text": text});
        self.post(&format!("element/{element}/value"), body).await.unwrap();
    }

    /// Puts a text in place of what is in a field, as typing does.
    pub async fn fill(&self, css: &str, text: &str) {
        let body = format!(
            "const field = document.querySelector({}); field.focus(); field.value = {};\
             field.dispatchEvent(new Event('input', {{bubbles: true}}));",
            Value::from(css),
            Value::from(text)
        );
        self.script(&body).await;
    }

    pub async fn path(&self) -> String {
        self.script("return location.pathname").await.as_str().unwrap().to_owned()
    }

    /// Changes what a page is looked at with.
    pub async fn look(&self, look: Look) {
        let Look { width, height, is_dark, .. } = look;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": width < 500});
        self.command("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", media).await;
    }

    pub async fn command(&self, name: &str, params: Value) -> Value {
        self.post("goog/cdp/execute", json!({"cmd": name, "params": params})).await.unwrap()
    }

    /// Leaves a picture of the page for eyes.
    pub async fn picture(&self, name: &str) {
        let made = self.command("Page.captureScreenshot", json!({"format": "png"})).await;
        let bytes = STANDARD.decode(made["data"].as_str().unwrap()).unwrap();
        let directory = screens();
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("{name}.png")), bytes).unwrap();
    }

    /// What the browser asked for since the last time, each with its size.
    pub async fn requests(&self) -> Vec<String> {
        let entries = self.log("performance").await;
        let messages = entries.iter().filter_map(|entry| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &message["message"];
            (message["method"] == "Network.requestWillBeSent")
                .then(|| message["params"]["request"]["url"].as_str().unwrap_or("").to_owned())
        });
        messages.collect()
    }

    /// What the browser complained of since the last time.
    pub async fn complaints(&self) -> Vec<String> {
        let entries = self.log("browser").await;
        let text = |entry: &Value| entry["message"].as_str().unwrap_or_default().to_owned();
        entries.iter().map(text).collect()
    }

    async fn log(&self, kind: &str) -> Vec<Value> {
        let entries = self.post("se/log", json!({"type": kind})).await.unwrap();
        entries.as_array().cloned().unwrap_or_default()
    }
}

async fn ask(client: &reqwest::Client, url: &str, body: &Value) -> Result<Value, String> {
    let sent = client.post(url).body(body.to_string()).send().await;
    let bytes = sent.map_err(|error| error.to_string())?.bytes().await;
    let bytes = bytes.map_err(|error| error.to_string())?;
    let mut answer: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let value = answer["value"].take();
    match value.get("error") {
        Some(error) => Err(format!("{error}: {}", value["message"])),
        None => Ok(value),
    }
}

fn target() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from)
}

fn screens() -> PathBuf {
    target().join("screens")
}

/// The checker of accessibility, as `scripts/fetch-axe` left it.
pub fn axe() -> String {
    let path = target().join("axe/axe.min.js");
    std::fs::read_to_string(&path)
        .unwrap_or_else(|_| panic!("{} is not there: scripts/fetch-axe brings it", path.display()))
}

/// The port that the driver says it was given. What it says later is read and dropped, so that it never waits for us.
fn announced_port(stdout: ChildStdout) -> u16 {
    let mut lines = BufReader::new(stdout).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once(DRIVER_READY)?;
        port.trim_end_matches('.').parse().ok()
    });
    std::thread::spawn(move || lines.map_while(Result::ok).count());
    port.expect("chromedriver says which port it has")
}
