//! Nothing a server can answer makes a call panic, and every failure can be shown to a person.

use crate::pve::exchange::{ExchangeOutcome, HttpAnswer};
use proptest::prelude::*;

use super::every_call::{Always, client, reads, writes};

/// Names PVE's answers use.
const NAMES: [&str; 30] = [
    "data",
    "vmid",
    "status",
    "version",
    "release",
    "node",
    "key",
    "value",
    "pending",
    "delete",
    "digest",
    "lxc",
    "name",
    "upid",
    "endtime",
    "exitstatus",
    "n",
    "t",
    "id",
    "type",
    "storage",
    "volid",
    "hasFeature",
    "ha",
    "managed",
    "template",
    "quorate",
    "size",
    "message",
    "errors",
];

/// Values PVE's answers have.
const VALUES: [&str; 10] = [
    "\"running\"",
    "\"stopped\"",
    "\"OK\"",
    "\"100\"",
    "100",
    "\"8.4.21\"",
    "\"pve1\"",
    "\"\"",
    "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"",
    "\"UPID:pve1:00001234:0123ABCD:65000000:vzstart:100:root@pam:\"",
];

/// JSON that looks like PVE's: the right names with any values.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        prop::num::f64::NORMAL.prop_map(|number| number.to_string()),
        "[ -~]{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        prop::sample::select(&VALUES[..]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        let field = (prop::sample::select(&NAMES[..]), inner);
        let field = field.prop_map(|(name, value)| format!("\"{name}\":{value}"));
        let object = prop::collection::vec(field, 0..6);
        prop_oneof![
            list.prop_map(|items| format!("[{}]", items.join(","))),
            object.prop_map(|fields| format!("{{{}}}", fields.join(","))),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..100),
        json().prop_map(String::into_bytes),
        json().prop_map(|data| format!(r#"{{"data":{data}}}"#).into_bytes()),
        (0usize..60, json()).prop_map(|(cut, data)| {
            let whole = format!(r#"{{"data":{data}}}"#).into_bytes();
            whole[..cut.min(whole.len())].to_vec()
        }),
    ]
}

fn status() -> impl Strategy<Value = u16> {
    prop_oneof![
        4 => Just(200u16),
        2 => prop::sample::select(vec![204, 301, 400, 401, 403, 500, 501, 506, 595, 596, 599]),
        1 => any::<u16>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn n06_any_answer_to_any_call_is_a_value_or_an_error_for_a_person(
        status in status(),
        reason in ".{0,40}",
        date in prop::option::of("[ -~]{0,32}"),
        body in body(),
    ) {
        let answer = HttpAnswer { status, reason, date, body };
        // A read that fails in passing is asked again after a pause, which is not waited for here.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let is_in_passing = (595..=599).contains(&status);
        let reads = reads().into_iter().map(|call| (call, if is_in_passing { 3 } else { 1 }));
        for ((name, call), times) in reads.chain(writes().into_iter().map(|call| (call, 1))) {
            let exchange = Always::new(ExchangeOutcome::Answered(answer.clone()));
            match runtime.block_on(call(client(exchange.clone()))) {
                Ok(_) => prop_assert!((200..300).contains(&status), "{}", name),
                Err(error) => {
                    prop_assert!(!error.to_string().is_empty() && !error.hint().is_empty());
                    let steers = error.to_string().contains('\u{1b}');
                    prop_assert!(!steers, "{}", error);
                }
            }
            prop_assert_eq!(exchange.lines().len(), times, "{} is sent as often", name);
        }
    }
}

/// Reading such an answer level by level would end the process, which no test harness survives.
#[tokio::test]
async fn n05_an_answer_nested_without_end_does_not_exhaust_the_stack() {
    let open = "[".repeat(50_000);
    let close = "]".repeat(50_000);
    for (data, is_whole) in [
        (open.clone(), false),
        (format!("{open}{close}"), true),
        (format!(r#"{{"lxc":{open}{close}}}"#), true),
        (format!(r#"[{{"key":{open}{close}}}]"#), true),
    ] {
        let body = format!(r#"{{"data":{data}}}"#).into_bytes();
        for (name, call) in reads().into_iter().chain(writes()) {
            let body = body.clone();
            let answer = HttpAnswer { status: 200, reason: "OK".into(), date: None, body };
            let result = call(client(Always::new(ExchangeOutcome::Answered(answer)))).await;
            assert!(is_whole || result.is_err(), "{name}");
        }
    }
}
