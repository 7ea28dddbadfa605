//! Tables of other state.

use std::fmt::Write;

use crate::inspect::recorder::table::StateTable;
use crate::inspect::svg::escaped;

/// Writes a table, which scrolls sideways by itself if it is too wide.
pub(super) fn write_table(page: &mut String, table: &StateTable) {
    let title = escaped(&table.title);
    let _ = write!(page, "<section class=\"card\">\n<h2>{title}</h2>\n");
    if table.rows.is_empty() {
        page.push_str("<p class=\"dim\">Nothing at the moment.</p>\n</section>\n");
        return;
    }
    // A figure at the other edge of the page is hard to read.
    let class = if table.columns.len() == 2 { " class=\"pairs\"" } else { "" };
    let _ = write!(
        page,
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{title}\"><table{class}>\n<thead><tr>"
    );
    let numeric: Vec<_> = (0..table.columns.len()).map(|place| is_numeric(table, place)).collect();
    for (column, is_numeric) in table.columns.iter().zip(&numeric) {
        let class = if *is_numeric { " class=\"n\"" } else { "" };
        let _ = write!(page, "<th scope=\"col\"{class}>{}</th>", escaped(column));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    table.rows.iter().for_each(|row| write_row(page, row, &numeric));
    page.push_str("</tbody></table></div>\n");
    if table.left_out > 0 {
        let _ = writeln!(page, "<p class=\"dim\">{} more are left out.</p>", table.left_out);
    }
    page.push_str("</section>\n");
}

fn write_row(page: &mut String, row: &[String], numeric: &[bool]) {
    page.push_str("<tr>");
    for (place, (text, is_numeric)) in row.iter().zip(numeric).enumerate() {
        let text = escaped(text);
        let _ = match (place, is_numeric) {
            (0, _) => write!(page, "<th scope=\"row\" class=\"name\">{text}</th>"),
            (_, true) => write!(page, "<td class=\"n\">{text}</td>"),
            (_, false) => write!(page, "<td>{text}</td>"),
        };
    }
    page.push_str("</tr>\n");
}

/// Returns true if all texts of a column but the first begin with a digit or a sign for nothing: they are set to the right.
fn is_numeric(table: &StateTable, place: usize) -> bool {
    let is_figure = |text: &String| text.starts_with(|start: char| start.is_ascii_digit() || "≤–<".contains(start));
    // Addresses begin with digits as well.
    let is_address = |text: &String| text.contains(':') || text.matches('.').count() > 1;
    place > 0 && table.rows.iter().filter_map(|row| row.get(place)).all(|text| is_figure(text) && !is_address(text))
}
