//! A document that takes long to read: the loop goes on meanwhile.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::support::{Fleet, cores, minutes};

/// How long the loop may be away: a command of the socket is answered within that.
const AWAY_MAX: Duration = Duration::from_secs(1);

/// A file of as many unknown keys as fit.
fn unknown_keys() -> String {
    let mut text = cores(7);
    for number in 0..80_000 {
        writeln!(text, "u{number} = 1").unwrap();
    }
    text
}

#[tokio::test(start_paused = true)]
async fn z11_while_a_hostile_document_is_read_the_loop_goes_on() {
    let fleet = Fleet::new().await;
    fleet.push(1, &cores(3));
    fleet.live(minutes(3)).await;
    // An author's key was stolen, or the author mocks us: what nobody signed is not read at all.
    fleet.push(2, &unknown_keys());
    // From here on an hour is an hour: reading takes the time it takes.
    tokio::time::resume();
    let watch = async {
        let mut longest = Duration::ZERO;
        while fleet.view.health().refused.is_none() {
            let asked = Instant::now();
            sleep(Duration::from_millis(5)).await;
            longest = longest.max(asked.elapsed());
        }
        longest
    };
    let longest = tokio::select! {
        longest = watch => longest,
        () = fleet.live(minutes(5)) => panic!("it was never refused"),
    };
    assert!(longest < AWAY_MAX, "the loop was away for {longest:?}");
    let refused = fleet.view.health().refused.unwrap();
    assert_eq!((refused.code.as_str(), refused.diagnostics.len()), ("payload", 20), "{refused:?}");
    assert!(refused.why.contains("80000 mistakes"), "{}", refused.why);
    assert_eq!(fleet.actual("lxc/100", "cores").as_deref(), Some("3"), "the last good one holds");
}
