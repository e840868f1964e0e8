//! A host that was away, and one that has nothing to say: what they send, and what they do at once.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_agent::ambient::Ambient as _;
use evenkeel_agent::hub_link::picture::HostPicture;
use evenkeel_core::fleet::{AgentState, Generation, PassReport};
use evenkeel_core::sign::Window;
use evenkeel_harness::script::quiet_guest;
use tokio::time::Instant;

use crate::support::{Fleet, cores, minutes};

/// What a quiet host may send in a minute.
const QUIET_BYTES_MAX: usize = 300;

/// Twenty guests as they are declared, and a pass a minute ago.
fn twenty_guests(fleet: &Fleet) -> Arc<dyn Fn() -> HostPicture + Send + Sync> {
    let ambient = Arc::clone(&fleet.rig.ambient);
    Arc::new(move || {
        let guest = |number: u32| {
            let report = quiet_guest(number);
            (report.guest.clone(), Arc::new(report))
        };
        HostPicture {
            agent: AgentState { version: "1.0.0".to_owned(), ..AgentState::default() },
            pass: Some(PassReport {
                at: ambient.now().to_string(),
                in_sync: 20,
                ..PassReport::default()
            }),
            guests: (101..121).map(guest).collect(),
            ..HostPicture::default()
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_quiet_host_sends_less_than_300_bytes_a_minute() {
    let mut fleet = Fleet::new().await;
    fleet.picture = twenty_guests(&fleet);
    fleet.push(1, &cores(3));
    fleet.live(minutes(5)).await;
    let began = Instant::now();
    fleet.live(minutes(70)).await;
    // A life begins with a whole report, and a record of it; after that there is an hour of nothing but polls.
    let settled = began + minutes(10);
    let sent = fleet.hub.targets_since(settled);
    assert!(sent.len() >= 60, "it goes on to ask: {sent:?}");
    assert!(sent.iter().all(|target| target.starts_with("/v1/agent/poll?")), "{sent:?}");
    let a_minute = fleet.hub.bytes_since(settled) / 60;
    println!("a quiet host sends {a_minute} bytes a minute");
    assert!(a_minute > 0 && a_minute < QUIET_BYTES_MAX, "{a_minute} bytes a minute");
    // Its first report is what it costs to be heard of at all, and the probe that bytes are counted.
    assert!(fleet.hub.bytes_since(began) / 70 > QUIET_BYTES_MAX / 10);
}

#[tokio::test(start_paused = true)]
async fn a_host_off_for_a_week_reports_once_takes_the_newest_and_keeps_to_its_policy() {
    let mut fleet = Fleet::new().await;
    fleet.picture = twenty_guests(&fleet);
    fleet.rig.approvals.as_mut().unwrap().policy.disruptive_per_hour = 1;
    // Without a time server a host that was off for days doubts its clock, and judges no window.
    fleet.rig.ambient.synchronise();
    let wish = |run: &str, cores: u32| {
        let guest = |number: u32| {
            format!("[guest.{number}]\nkind = \"lxc\"\nrun = \"{run}\"\ncores = {cores}\n")
        };
        format!("{}{}", guest(100), guest(102))
    };
    fleet.push(1, &wish("running", 2));
    fleet.live(minutes(5)).await;
    let left = fleet.now();
    let told = fleet.hub.reports();
    // An author signs for the whole week, a document a day; somebody plays with a guest.
    let window = Window::new(left, left.plus(7 * 24 * 3_600)).unwrap();
    for day in 1..7_u32 {
        tokio::time::sleep(Duration::from_hours(24)).await;
        let run = if day == 6 { "stopped" } else { "running" };
        let document =
            Fleet::signed_over(fleet.base(), window, u64::from(day) + 1, &wish(run, day + 2));
        fleet.offer(u64::from(day) + 1, &document);
        fleet.edit("lxc/100", "cores", "1");
    }
    tokio::time::sleep(Duration::from_hours(12)).await;
    let back = Instant::now();
    let writes = fleet.writes().len();
    fleet.live(minutes(30)).await;
    let fetched: Vec<String> = fleet.hub.targets_since(back);
    let fetched: Vec<&String> =
        fetched.iter().filter(|target| target.starts_with("/v1/agent/documents/")).collect();
    assert_eq!(fetched, ["/v1/agent/documents/7"], "the newest alone");
    assert_eq!(fleet.hub.generation_told(), Some(Generation(7)));
    // Everything in one; what changed since (the document it took, the journal's head) in a word each.
    let reports = fleet.hub.reports_after(told);
    let whole = reports.iter().filter(|report| !report.guests.is_empty()).count();
    assert_eq!((whole, reports[0].guests.len()), (1, 20), "{reports:?}");
    assert!(reports.len() <= 4, "{} reports: {reports:?}", reports.len());
    let done = fleet.writes()[writes..].to_vec();
    let stops = |done: &[String]| done.iter().filter(|write| write.ends_with(" shutdown")).count();
    assert_eq!(stops(&done), 1, "an hour allows one: {done:?}");
    // Before it hears of the newest, it heals by the last good one what somebody played with.
    let puts = |guest: &str| done.iter().filter(|write| write.contains(guest)).count();
    assert_eq!(done.len() - stops(&done), 3, "{done:?}");
    assert!(puts("PUT lxc/100") == 2 && puts("PUT lxc/102") == 1, "{done:?}");
    for guest in ["lxc/100", "lxc/102"] {
        assert_eq!(fleet.actual(guest, "cores").as_deref(), Some("8"), "{guest}");
    }
    fleet.live(minutes(120)).await;
    let done = fleet.writes()[writes..].to_vec();
    assert_eq!((stops(&done), done.len()), (2, 5), "the rest in its own time: {done:?}");
}
