//! Helpers of the JSON documents: snapshots of recorders, and HAR.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Number, Value, json};
use speeddial::trace::Reason;

/// The form of the times in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// Milliseconds, exact to the nanosecond, in members such as `time`.
    Millis,
    /// Whole nanoseconds, in members such as `time_ns`.
    Nanos,
}

/// Returns the document as text. Members without a value are left out. Line separators are escaped, because old scripts cannot read them.
pub(crate) fn text(mut document: Value) -> String {
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
pub(crate) fn array<T>(items: impl IntoIterator<Item = T>, to_json: impl Fn(T) -> Value) -> Value {
    items.into_iter().map(to_json).collect()
}

/// Returns a time in nanoseconds, at most `u64::MAX` (584 years).
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a time in milliseconds, exact to the nanosecond.
pub(crate) fn millis(time: Duration) -> Value {
    let nanos = nanos(time);
    match nanos % 1_000_000 {
        0 => (nanos / 1_000_000).into(),
        _ => Number::from_f64(nanos as f64 / 1e6).into(),
    }
}

/// Returns a reason why a call took its time.
pub(crate) fn reason(reason: &Reason, form: TimeForm) -> Value {
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

const SECONDS_PER_DAY: u64 = 86_400;
/// The days of 400 years, after which the calendar repeats itself.
const DAYS_PER_ERA: u64 = 146_097;
/// The days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_EPOCH: u64 = 719_468;

/// Formats a time as in `2026-02-28T23:59:59.999Z`. A time before 1970 becomes the start of 1970.
pub(crate) fn iso_date(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let [year, month, day] = civil(since.as_secs() / SECONDS_PER_DAY);
    let second = since.as_secs() % SECONDS_PER_DAY;
    let [hour, minute, second] = [second / 3600, second / 60 % 60, second % 60];
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Returns year, month and day of the day that is `days` after 1970-01-01 in the Gregorian calendar.
///
/// Years begin in March here, so that the leap day is the last one of its year.
fn civil(days: u64) -> [u64; 3] {
    let days = days + DAYS_BEFORE_EPOCH;
    let day_of_era = days % DAYS_PER_ERA;
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    // Five months from March, and from August, have 153 days.
    let month_from_march = (day_of_year * 5 + 2) / 153;
    let day = day_of_year - (month_from_march * 153 + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = days / DAYS_PER_ERA * 400 + year_of_era + u64::from(month <= 2);
    [year, month, day]
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

    fn date(millis: u64) -> String {
        iso_date(UNIX_EPOCH + Duration::from_millis(millis))
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(date(951_868_799_999), "2000-02-29T23:59:59.999Z");
        assert_eq!(date(1_709_164_800_001), "2024-02-29T00:00:00.001Z");
        assert_eq!(date(4_107_542_400_000), "2100-03-01T00:00:00.000Z", "2100 is no leap year");
        assert_eq!(iso_date(UNIX_EPOCH - Duration::from_secs(9)), date(0));
    }

    #[test]
    fn each_day_of_four_centuries_follows_the_one_before() {
        let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let mut expected = [1970, 1, 1];
        for days in 0..DAYS_PER_ERA {
            assert_eq!(civil(days), expected);
            let [year, month, day] = expected;
            let length = match month {
                2 => 28 + u64::from(is_leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            expected = match (day == length, month) {
                (false, _) => [year, month, day + 1],
                (true, 12) => [year + 1, 1, 1],
                (true, _) => [year, month + 1, 1],
            };
        }
    }

    #[test]
    fn dates_agree_with_those_of_http() {
        for days in (0..40_000).step_by(13) {
            let time = UNIX_EPOCH + Duration::from_secs(days * SECONDS_PER_DAY + 45_296);
            let http = httpdate::fmt_http_date(time);
            let iso = iso_date(time);
            assert!(
                http[5..7] == iso[8..10] && http[12..16] == iso[..4] && http[17..25] == iso[11..19],
                "{http} {iso}"
            );
        }
    }
}
