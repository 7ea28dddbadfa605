//! The guide's table of defaults, compared with the code. Each row is listed in `rows.rs` with the constants it states.

use std::collections::BTreeSet;
use std::fs;

use super::repeats::REPEATS;
use super::rows::{ROWS, Row, Source};
use super::rows_of_calls;

/// A figure of a text or of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    /// A time, in microseconds.
    Time(u64),
    /// A number: of things, of bytes, or of hundredths.
    Number(u64),
}

#[test]
fn the_table_of_defaults_states_what_the_code_does() {
    let table = rows_of(&read("guide/defaults.md"));
    let mut wrong = Vec::new();
    for (setting, default) in &table {
        let Some((_, sources)) = all_rows().find(|(listed, _)| listed == setting) else {
            wrong.push(format!("`{setting}` is not listed in tests/tidy/rows.rs or rows_of_calls.rs"));
            continue;
        };
        let said: BTreeSet<_> = figures(default).into_iter().collect();
        let meant: BTreeSet<_> = sources.iter().flat_map(figures_of).collect();
        if said != meant {
            wrong.push(format!("`{setting}`: the table says {said:?}, the code {meant:?}"));
        }
    }
    for (setting, _) in all_rows() {
        if table.iter().all(|(row, _)| row != setting) {
            wrong.push(format!("`{setting}` is not in the table"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn documentation_that_repeats_a_default_states_the_same_figure() {
    let mut wrong = Vec::new();
    for source in all_rows().flat_map(|(_, sources)| *sources).chain(REPEATS) {
        let (Source::Const(_, name, places) | Source::Field(_, _, name, places)) = source else { continue };
        for (file, anchor) in *places {
            let said = figures(&in_digits(&documentation(file, anchor)));
            if !figures_of(source).iter().all(|figure| said.contains(figure)) {
                wrong.push(format!("{file}, {anchor}: {name} is {:?}, the text has {said:?}", figures_of(source)));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_guide_to_timeouts_states_the_defaults_of_the_table() {
    let table = rows_of(&read("guide/defaults.md"));
    for (setting, default) in rows_of(&read("guide/timeouts.md")) {
        let name = setting.replace("PoolConfig::", "");
        let (_, listed) = table.iter().find(|(row, _)| *row == name).unwrap_or_else(|| panic!("no row {name}"));
        assert_eq!(figures(&default).first(), figures(listed).first(), "{name}");
    }
}

fn all_rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(rows_of_calls::ROWS)
}

fn read(file: &str) -> String {
    fs::read_to_string(format!("../src/{file}")).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the first two cells of each row of the tables in a text, without the rows of their heads.
fn rows_of(text: &str) -> Vec<(String, String)> {
    let lines: Vec<_> = text.lines().collect();
    let mut rows = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let is_head = lines.get(number + 1).is_some_and(|next| next.starts_with("|---"));
        if line.starts_with("| ") && !is_head {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            rows.push((cells[1].to_owned(), cells[2].to_owned()));
        }
    }
    rows
}

/// Returns the figures that a source of a default has in the code.
fn figures_of(source: &Source) -> Vec<Figure> {
    match source {
        Source::Const(file, name, _) => {
            let code = read(file);
            let (_, rest) = code.split_once(&format!("const {name}: ")).unwrap_or_else(|| panic!("{file}: no {name}"));
            let (_, expression) = rest.split_once(" = ").expect("a constant has a value");
            vec![value(expression.split(';').next().unwrap_or_default())]
        }
        Source::Field(file, start, field, _) => {
            let code = read(file);
            let (_, rest) = code.split_once(start).unwrap_or_else(|| panic!("{file}: no {start}"));
            let (_, rest) = rest.split_once(&format!("{field}: ")).unwrap_or_else(|| panic!("{file}: no {field}"));
            let end = rest.find([',', '}', ';']).expect("a field's value ends");
            // In a table its type comes behind it.
            vec![value(rest[..end].split(" => ").next().unwrap_or_default())]
        }
        Source::Text(said, file, code) => {
            assert!(read(file).contains(code), "{file} has no {code:?}");
            figures(said)
        }
    }
}

/// Computes a constant expression, as far as those of the defaults go.
fn value(expression: &str) -> Figure {
    let expression = expression.trim();
    let within = |start: &str| expression.strip_prefix(start).and_then(|rest| rest.strip_suffix(')'));
    if let Some(seconds) = within("Duration::from_secs(") {
        Figure::Time(number(seconds) * 1_000_000)
    } else if let Some(milliseconds) = within("Duration::from_millis(") {
        Figure::Time(number(milliseconds) * 1_000)
    } else {
        Figure::Number(number(expression))
    }
}

fn number(expression: &str) -> u64 {
    if let Some((one, other)) = expression.split_once(" << ") {
        return number(one) << number(other);
    }
    expression.split(" * ").map(literal).product()
}

fn literal(text: &str) -> u64 {
    let digits = text.trim().replace('_', "");
    let digits = digits.strip_suffix(".0").unwrap_or(&digits);
    digits.parse().unwrap_or_else(|_| panic!("{text:?} is not a number that this test can read"))
}

/// Returns the figures in a text: numbers that are not part of a name such as HTTP/2, IPv4, `TLS 1.2` or RFC 6724.
fn figures(text: &str) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut before = "";
    for (index, word) in text.split_whitespace().enumerate() {
        let next = text.split_whitespace().nth(index + 1).unwrap_or_default();
        let is_name = matches!(before.trim_start_matches('('), "RFC" | "TLS" | "HTTP");
        let trimmed = word.trim_matches(|c: char| !c.is_ascii_digit() && c != '§');
        let is_number = trimmed.matches('.').count() <= 1
            && !trimmed.is_empty()
            && trimmed.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '.'));
        let is_bare = word.trim_matches(|c: char| "()`,.;:".contains(c)) == trimmed;
        if is_number && is_bare && !is_name {
            let ends = word.ends_with([',', ';', '.', ')', '`']);
            figures.push(figure(trimmed, if ends { "" } else { next }));
        }
        before = word;
    }
    figures
}

fn figure(digits: &str, unit: &str) -> Figure {
    let amount: f64 = digits.replace(',', "").parse().expect("a number");
    let times = |factor: f64| (amount * factor).round() as u64;
    match unit.trim_matches(|c: char| !c.is_alphanumeric() && c != '%') {
        "ms" => Figure::Time(times(1e3)),
        "s" => Figure::Time(times(1e6)),
        "min" => Figure::Time(times(60e6)),
        "h" => Figure::Time(times(3_600e6)),
        "day" | "days" => Figure::Time(times(86_400e6)),
        "KiB" => Figure::Number(times(1_024.0)),
        "MiB" => Figure::Number(times(1_048_576.0)),
        "GiB" => Figure::Number(times(1_073_741_824.0)),
        _ => Figure::Number(times(1.0)),
    }
}

/// Replaces the numbers that a text has in words by digits.
fn in_digits(text: &str) -> String {
    let words = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    let digits = |word: &str| {
        let bare = word.trim_end_matches([',', '.', ';', ':']).to_lowercase();
        words.iter().position(|number| *number == bare).map(|index| (index + 2).to_string())
    };
    text.split_whitespace().map(|word| digits(word).unwrap_or_else(|| word.to_owned())).collect::<Vec<_>>().join(" ")
}

/// Returns the doc comment of the item whose code contains `anchor`, or the lines of a guide around it.
fn documentation(file: &str, anchor: &str) -> String {
    let text = read(file);
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.contains(anchor)).unwrap_or_else(|| panic!("{file}: no {anchor}"));
    if file.ends_with(".md") {
        return lines[at..lines.len().min(at + 2)].join(" ");
    }
    let above = lines[..at].iter().rev().skip_while(|line| line.starts_with("#["));
    let comment: Vec<_> = above.map_while(|line| line.strip_prefix("///")).collect();
    comment.into_iter().rev().collect::<Vec<_>>().join(" ")
}

#[test]
fn figures_are_read_from_texts_and_from_code() {
    use Figure::{Number, Time};
    assert_eq!(
        figures("at most 1,024 over HTTP/1.1, IPv4, TLS 1.2 (RFC 6724); 1.8 s"),
        [Number(1_024), Time(1_800_000)]
    );
    assert_eq!(figures("70 % or 64 KiB, then 5 min."), [Number(70), Number(65_536), Time(300_000_000)]);
    assert_eq!(figures("1 day; 1 h (250 ms) 1xx §5"), [Time(86_400_000_000), Time(3_600_000_000), Time(250_000)]);
    assert_eq!(figures(&in_digits("Three by default; at most six.")), [Number(3), Number(6)]);
    assert_eq!(value("Duration::from_secs(15 * 60)"), Time(900_000_000));
    assert_eq!([value("1 << 20"), value("4_096"), value("100.0")], [Number(1 << 20), Number(4_096), Number(100)]);
}

#[test]
fn a_row_of_a_table_is_its_first_two_cells() {
    let table = "| setting | default | reason |\n|---|---|---|\n| `a` | 1 s | b |\n\ntext";
    assert_eq!(rows_of(table), [("`a`".to_owned(), "1 s".to_owned())]);
}
