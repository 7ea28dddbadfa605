//! Texts of strangers, such as servers and certificates, made fit to be shown.

use std::fmt::{self, Display, Write};

/// Returns the beginning of a text that a stranger may have written, of at most `most` characters and of one line. Each character
/// that could steer a terminal, turn the text around or hide in it is replaced by U+FFFD.
pub(crate) fn shown(text: &str, most: usize) -> String {
    text.chars().take(most).map(|char| if is_hidden(char) { '\u{fffd}' } else { char }).collect()
}

/// Returns the beginning of a text that a stranger may have written as [`shown`] does, with spaces for line breaks and tabs, and with
/// `…` if there is more. No more of the text is made than is shown.
pub(crate) fn line(text: impl Display, most: usize) -> String {
    let mut line = Line { text: String::new(), room: most };
    match write!(line, "{text}") {
        Ok(()) => line.text,
        Err(_) => line.text + "…",
    }
}

struct Line {
    text: String,
    room: usize,
}

impl Write for Line {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for char in part.chars() {
            self.room = self.room.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(match is_hidden(char) {
                true if char.is_whitespace() => ' ',
                true => '\u{fffd}',
                false => char,
            });
        }
        Ok(())
    }
}

/// Returns true for control characters, and for the format characters that change the text around them or have no shape: those
/// of lines and directions (UAX #9), joiners and tags (Unicode 17, chapter 23). And for noncharacters, two of which XML excludes.
pub(crate) fn is_hidden(char: char) -> bool {
    let is_format = matches!(
        char,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
    );
    let is_noncharacter = matches!(char, '\u{fdd0}'..='\u{fdef}') || u32::from(char) & 0xfffe == 0xfffe;
    char.is_control() || is_format || is_noncharacter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_steer_or_hide_are_replaced() {
        let hidden = [
            '\0',
            '\n',
            '\r',
            '\t',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2067}',
            '\u{2068}',
            '\u{2069}',
            '\u{feff}',
            '\u{fdd0}',
            '\u{fffe}',
            '\u{10ffff}',
            '\u{e0041}',
        ];
        for char in hidden {
            assert_eq!(shown(&format!("a{char}b"), 9), "a\u{fffd}b", "{char:?}");
        }
        let plain = "api.test *.é ü 日本 ✓ \u{a0}\u{202f}";
        assert_eq!(shown(plain, 100), plain);
        assert_eq!(shown(&"é".repeat(500), 200).chars().count(), 200);
    }

    #[test]
    fn a_line_has_spaces_for_line_breaks_and_says_that_there_is_more() {
        assert_eq!(line("a\r\nb\tc\u{2028}d\u{1b}[1m\u{202e}", 20), "a  b c d\u{fffd}[1m\u{fffd}");
        assert_eq!((line("äöü", 3).as_str(), line("äöüß", 3).as_str()), ("äöü", "äöü…"));
        assert_eq!(line(format_args!("{}{}", "ab", "cd"), 3), "abc…");
    }
}
