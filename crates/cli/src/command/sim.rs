//! `evenkeel sim`: a Proxmox VE in memory, for trying things out and for your own CI.
//!
//! It has well-known tokens with all rights, so it listens on loopback only.

use std::io::Write as _;
use std::net::SocketAddr;

use evenkeel_core::model::release::Release;
use evenkeel_sim::{Effect, Fault, Http, HttpOptions, Scenario, ScenarioFile, Simulator, TOKENS};
use jiff::Timestamp;

use crate::cli::{OutputFormat, SimArgs};
use crate::error::{CommandFailure, Exit};
use crate::format;
use crate::format::tools::SimFormat;
use crate::interrupt::Interrupts;
use crate::render::counted;
use crate::signing::file;

pub(crate) async fn run(arguments: &SimArgs) -> Result<Exit, CommandFailure> {
    let address = loopback(arguments.listen)?;
    let mut simulator = simulator(arguments)?;
    for fault in faults(arguments)? {
        simulator.inject(fault);
    }
    if let Some(directory) = &arguments.cluster_fs {
        simulator.show_cluster_fs(directory.as_std_path()).map_err(|error| {
            CommandFailure::new(Exit::Failed, format!("cannot write to {directory}")).because(error)
        })?;
    }
    // A saved state is the node it was, whatever the flags say.
    let world = &simulator.world;
    let node = SimAnnouncement {
        release: world.release(),
        name: world.node.clone(),
        guests: world.guests.len(),
    };
    let options = HttpOptions { address, tls: !arguments.plain_http };
    let http = Http::start(simulator, options).await.map_err(|error| {
        CommandFailure::wrapping(Exit::Failed, error)
            .hint("is the port taken? --listen 127.0.0.1:0 takes a free one")
    })?;
    // Listening before anybody can know of us: a script that ends us at once still gets its state saved.
    let mut stop = Interrupts::listen()?;
    announce(&http, &node, arguments)?;
    stop.next().await;
    if let Some(path) = &arguments.state {
        http.node
            .with(|simulator| simulator.save(path.as_std_path()))
            .map_err(|error| CommandFailure::wrapping(Exit::Failed, error))?;
    }
    Ok(Exit::Ok)
}

fn loopback(address: SocketAddr) -> Result<SocketAddr, CommandFailure> {
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(CommandFailure::new(Exit::Usage, format!("the simulator listens on loopback only, and {address} is not"))
        .hint("its tokens are public and have all rights; use 127.0.0.1, and a tunnel to reach it from elsewhere"))
}

/// The saved state if there is one, else a new world.
fn simulator(arguments: &SimArgs) -> Result<Simulator, CommandFailure> {
    match &arguments.state {
        Some(path) if path.exists() => Simulator::load(path.as_std_path())
            .map_err(|error| CommandFailure::wrapping(Exit::Invalid, error)),
        Some(_) | None => {
            let scenario = Scenario {
                release: arguments.pve,
                node: arguments.node.to_string(),
                guests: arguments.guests,
                seed: arguments.seed,
            };
            let mut world = scenario.build();
            // Guests come from the seed alone, but the node's clock is right, as a real one's.
            world.epoch_s = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
            let mut simulator = Simulator::new(world);
            declare(arguments, &mut simulator)?;
            Ok(simulator)
        }
    }
}

/// Adds what the scenario file declares; a saved state has it already.
fn declare(arguments: &SimArgs, simulator: &mut Simulator) -> Result<(), CommandFailure> {
    let Some(path) = &arguments.scenario else { return Ok(()) };
    let bytes = file::read(path, INPUT_BYTES_MAX)?;
    let declared: ScenarioFile = serde_json::from_slice(&bytes).map_err(|error| {
        CommandFailure::new(Exit::Invalid, format!("{path} is not a scenario")).because(error).hint(
            r#"such as {"files": [{"volid": "local:iso/x.iso", "size": "600M"}]}; see docs/reference/simulator.md"#,
        )
    })?;
    declared.apply(simulator).map_err(|error| {
        CommandFailure::new(Exit::Invalid, format!("{path} does not fit the simulated node"))
            .because(error)
    })
}

/// The largest file of faults, and the largest scenario, that is read.
const INPUT_BYTES_MAX: usize = 1 << 20;

fn faults(arguments: &SimArgs) -> Result<Vec<Fault>, CommandFailure> {
    let mut faults: Vec<Fault> = match &arguments.faults {
        None => Vec::new(),
        Some(path) => {
            let bytes = file::read(path, INPUT_BYTES_MAX)?;
            serde_json::from_slice(&bytes).map_err(|error| {
                CommandFailure::new(Exit::Invalid, format!("{path} is not a list of faults"))
                    .because(error)
                    .hint(r#"such as [{"effect": {"kind": "latency", "ms": 200}, "contains": "/lxc"}]"#)
            })?
        }
    };
    if arguments.latency_ms > 0 {
        let effect = Effect::Latency { ms: arguments.latency_ms };
        faults.push(Fault { effect, method: None, contains: None, times: None });
    }
    Ok(faults)
}

/// The node as it is announced.
struct SimAnnouncement {
    release: Release,
    name: String,
    guests: usize,
}

/// Says where it is, in a form a script can read.
fn announce(
    http: &Http,
    node: &SimAnnouncement,
    arguments: &SimArgs,
) -> Result<(), CommandFailure> {
    let (id, secret, _) = TOKENS[0];
    let token = format!("{id}={secret}");
    let fingerprint = (!arguments.plain_http).then(|| http.certificate().fingerprint);
    let out = &mut std::io::stdout();
    match arguments.output.output {
        OutputFormat::Json => {
            let url = http.url();
            let node = node.name.clone();
            format::print(&SimFormat { format_version: 1, url, token, node, fingerprint })?;
        }
        OutputFormat::Table => {
            writeln!(
                out,
                "A Proxmox VE {} that pretends, with {}.\n",
                node.release,
                counted(node.guests, "guest")
            )?;
            writeln!(out, "url          {}", http.url())?;
            writeln!(out, "token        {token}")?;
            writeln!(out, "node         {}", node.name)?;
            if let Some(fingerprint) = &fingerprint {
                writeln!(out, "fingerprint  {fingerprint}")?;
            }
            let pin = fingerprint.map(|pin| format!(" --fingerprint {pin}")).unwrap_or_default();
            writeln!(out, "\nTry it from another terminal:\n")?;
            writeln!(
                out,
                "  export PROXMOX_VE_ENDPOINT={} PROXMOX_VE_API_TOKEN='{token}'",
                http.url()
            )?;
            writeln!(
                out,
                "  evenkeel import{pin} --out desired && evenkeel plan{pin} --desired desired"
            )?;
        }
    }
    out.flush()?;
    Ok(())
}
