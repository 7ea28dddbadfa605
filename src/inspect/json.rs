//! JSON as text (RFC 8259), for what must be written without the feature `json`.

use std::fmt::{Display, Write};
use std::time::Duration;

/// Writes JSON into a text. The caller closes what it opens by the end of a function, so that the text is well-formed.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter {
    text: String,
    /// True if a comma comes before the next key or value.
    follows_value: bool,
}

impl JsonWriter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the text.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// Writes an object, whose members `members` writes.
    pub(crate) fn object(&mut self, members: impl FnOnce(&mut Self)) {
        self.enclosed('{', members, '}');
    }

    /// Writes an array, whose items `items` writes.
    pub(crate) fn array(&mut self, items: impl FnOnce(&mut Self)) {
        self.enclosed('[', items, ']');
    }

    /// Writes the name of a member. Its value is written next.
    pub(crate) fn key(&mut self, name: &str) -> &mut Self {
        self.separate();
        write_string(&mut self.text, name);
        self.text.push(':');
        self.follows_value = false;
        self
    }

    /// Writes a string.
    pub(crate) fn string(&mut self, text: &str) {
        self.separate();
        write_string(&mut self.text, text);
    }

    /// Writes a string that is made of a value.
    pub(crate) fn display(&mut self, value: impl Display) {
        self.string(&value.to_string());
    }

    /// Writes a whole number.
    pub(crate) fn number(&mut self, number: impl Into<i128>) {
        self.raw(number.into());
    }

    /// Writes a number with up to four digits after the point; 0 for one that JSON does not know.
    pub(crate) fn decimal(&mut self, number: f64) {
        let rounded = (number * 1e4).round() / 1e4;
        self.raw(if rounded.is_finite() { rounded } else { 0.0 });
    }

    /// Writes true or false.
    pub(crate) fn boolean(&mut self, value: bool) {
        self.raw(value);
    }

    /// Writes a time in milliseconds, exact to the nanosecond.
    pub(crate) fn millis(&mut self, time: Duration) {
        let nanos = time.as_nanos();
        let (whole, rest) = (nanos / 1_000_000, nanos % 1_000_000);
        if rest == 0 {
            self.raw(whole);
        } else {
            let fraction = format!("{rest:06}");
            self.raw(format_args!("{whole}.{}", fraction.trim_end_matches('0')));
        }
    }

    fn raw(&mut self, value: impl Display) {
        self.separate();
        let _ = write!(self.text, "{value}"); // a String takes everything
    }

    fn enclosed(&mut self, open: char, content: impl FnOnce(&mut Self), close: char) {
        self.separate();
        self.text.push(open);
        self.follows_value = false;
        content(self);
        self.text.push(close);
        self.follows_value = true;
    }

    /// Begins a key or a value.
    fn separate(&mut self) {
        if self.follows_value {
            self.text.push(',');
        }
        self.follows_value = true;
    }
}

/// Writes a text as a JSON string (RFC 8259 §7). Line separators are escaped too, because old scripts cannot read them.
fn write_string(json: &mut String, text: &str) {
    json.push('"');
    for char in text.chars() {
        match char {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            char if char.is_control() || matches!(char, '\u{2028}' | '\u{2029}') => {
                let _ = write!(json, "\\u{:04x}", u32::from(char));
            }
            char => json.push(char),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_members_and_items() {
        let mut json = JsonWriter::new();
        json.object(|json| {
            json.key("a").array(|_| {});
            json.key("b").array(|json| {
                json.number(1_u64);
                json.number(-1);
                json.object(|_| {});
                json.string("x");
            });
            json.key("c").object(|json| json.key("d").boolean(true));
            json.key("e").display(7);
        });
        assert_eq!(json.finish(), r#"{"a":[],"b":[1,-1,{},"x"],"c":{"d":true},"e":"7"}"#);
    }

    #[test]
    fn decimals_are_rounded_and_finite() {
        let decimal = |number| {
            let mut json = JsonWriter::new();
            json.decimal(number);
            json.finish()
        };
        assert_eq!([0.0, 1.0, 2.0 / 3.0, f64::NAN, f64::INFINITY].map(decimal), ["0", "1", "0.6667", "0", "0"]);
    }

    #[test]
    fn times_are_milliseconds_to_the_nanosecond() {
        let millis = |nanos| {
            let mut json = JsonWriter::new();
            json.millis(Duration::from_nanos(nanos));
            json.finish()
        };
        let expected = ["0", "0.000001", "1", "1.5", "12.34", "86400000"];
        assert_eq!([0, 1, 1_000_000, 1_500_000, 12_340_000, 86_400_000_000_000].map(millis), expected);
    }

    #[test]
    fn any_text_is_read_back_as_it_was() {
        let every: String = (0..0x3000).filter_map(char::from_u32).chain("\u{fffd}\u{1f600}".chars()).collect();
        for text in ["", "\"\\/\u{0}\u{1b}\u{7f}\n", &every] {
            let mut json = JsonWriter::new();
            json.string(text);
            let json = json.finish();
            assert!(!json.contains(char::is_control) && !json.contains('\u{2028}'));
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
