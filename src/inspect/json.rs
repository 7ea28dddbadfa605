//! Helpers of the JSON documents: snapshots of recorders, and HAR.

use std::time::Duration;

use serde_json::{Number, Value, json};

use crate::trace::{Reason, nanos};

/// The form of the times in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeForm {
    /// Milliseconds, exact to the nanosecond, in members such as `time`.
    Millis,
    /// Whole nanoseconds, in members such as `time_ns`.
    Nanos,
}

/// Returns the document as text. Members without a value are left out. Line separators are escaped, because old scripts cannot read them.
pub(super) fn text(mut document: Value) -> String {
    remove_nulls(&mut document);
    document.to_string().replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Returns an array of what `to_json` makes of each item.
pub(super) fn array<T>(items: impl IntoIterator<Item = T>, to_json: impl Fn(T) -> Value) -> Value {
    items.into_iter().map(to_json).collect()
}

/// Returns a time in milliseconds, exact to the nanosecond.
pub(super) fn millis(time: Duration) -> Value {
    let nanos = nanos(time);
    match nanos % 1_000_000 {
        0 => (nanos / 1_000_000).into(),
        _ => Number::from_f64(nanos as f64 / 1e6).into(),
    }
}

/// Returns a reason why a call took its time.
pub(super) fn reason(reason: &Reason, form: TimeForm) -> Value {
    let is_millis = form == TimeForm::Millis;
    json!({
        "cause": reason.cause.as_str(),
        "phase": reason.phase.as_str(),
        "time": is_millis.then(|| millis(reason.time)),
        "time_ns": (!is_millis).then(|| nanos(reason.time)),
        "share": (reason.share * 1e4).round() / 1e4,
        "text": reason.to_string(),
        "advice": reason.advice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_and_members_without_a_value_are_left_out() {
        let times = [0, 1, 12_000_000, 12_500_000, 86_400_000_000_001].map(Duration::from_nanos);
        assert_eq!(text(array(times, millis)), "[0,1e-6,12,12.5,86400000.000001]");
        assert_eq!(text(json!({ "a": null, "b": [{ "c": null }] })), r#"{"b":[{}]}"#);
    }
}
