//! Lists, times and numbers as words. A core.

use std::fmt::Display;
use std::time::Duration;

/// The advice for a server that rejects the client's certificate, or the lack of one.
#[cfg(feature = "__tls")]
pub(super) const CERTIFICATE_ADVICE: &str = "Give the client a certificate of an authority that the server trusts, which is meant for \
                                             clients and has not expired (`ClientBuilder::identity`), or let the server accept clients \
                                             without one.";

/// The most items of a list that are named.
const MOST_NAMED: usize = 3;

/// Joins items as a sentence does: `a`, `a and b`, `a, b and c`, `a, b, c and 2 more`. Each is named once.
pub(super) fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let mut texts: Vec<String> = Vec::new();
    for item in items {
        let text = item.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.len() > MOST_NAMED {
        let more = format!("{} more", texts.len() - MOST_NAMED);
        texts.truncate(MOST_NAMED);
        texts.push(more);
    }
    match texts.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Returns the form of a word that goes with a number of subjects: `refuses` or `refuse`.
pub(super) fn verb(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Returns a time in its largest unit.
pub(super) fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    let (count, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7_199 => (seconds / 60, "minute"),
        7_200..=172_799 => (seconds / 3_600, "hour"),
        172_800..=63_115_199 => (seconds / 86_400, "day"),
        _ => (seconds / 31_557_600, "year"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_in_a_sentence() {
        assert_eq!(list(["a"]), "a");
        assert_eq!(list(["a", "b", "a"]), "a and b");
        assert_eq!(list(["a", "b", "c"]), "a, b and c");
        assert_eq!(list(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(list(Vec::<String>::new()), "");
    }

    #[test]
    fn times_are_in_their_largest_unit() {
        let texts = [1, 90, 600, 7_200, 200_000, 70_000_000].map(|seconds| roughly(Duration::from_secs(seconds)));
        assert_eq!(texts, ["1 second", "90 seconds", "10 minutes", "2 hours", "2 days", "2 years"]);
    }
}
