//! What a client learned in an earlier process, as a file may have it.

use serde_json::Value;
use speeddial::settings::Learned;
use speeddial::{Client, ErrorKind};

use crate::common::block_on;

/// Restores a client from the bytes. What it has learned then is bounded, and is the same after it went through another client.
pub(crate) fn run(data: &[u8]) {
    let Ok(learned) = serde_json::from_slice::<Learned>(data) else { return };
    block_on(async {
        let client = || Client::builder().no_proxy().build().expect("a client");
        let first = client();
        if let Err(error) = first.restore(&learned) {
            assert_eq!(error.kind(), ErrorKind::Request, "{error}");
            assert!(first.learned().is_empty(), "restored in part");
            return;
        }
        let restored = first.learned();
        assert!(restored.len() <= learned.len(), "more than there was");
        let second = client();
        second.restore(&restored).expect("what a client has learned can be restored");
        let again = second.learned();
        assert_eq!(without_times(&again), without_times(&restored), "another state after saving and restoring");
        // A restored client is as good as any other.
        assert_eq!(first.pool_stats().in_use, 0);
    });
}

/// Returns what was learned without its times, which pass between saving and restoring.
fn without_times(learned: &Learned) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for time in ["age", "idle_limit_age", "taken", "expires"] {
                    members.remove(time);
                }
                members.values_mut().for_each(strip);
            }
            Value::Array(values) => {
                values.iter_mut().for_each(strip);
                values.sort_by_key(Value::to_string);
            }
            _ => {}
        }
    }
    let mut value = serde_json::to_value(learned).expect("it can be saved");
    strip(&mut value);
    value
}
