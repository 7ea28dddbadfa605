//! The table of what a jar sends after what servers set. `go_table.go` checks its column of Go.

use speeddial::cookie::Jar;

use super::header;

const TABLE: &str = include_str!("table.txt");

#[test]
fn the_jar_sends_what_the_table_has() {
    let mut jar = Jar::default();
    let mut row = "";
    let mut rows = 0;
    let mut requests = 0;
    let mut wrong = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((from, set)) = line.split_once(" <- ") {
            jar.add_cookie_str(set, &from.parse().unwrap());
        } else if let Some((to, expected)) = line.split_once(" -> ") {
            requests += 1;
            let columns: Vec<_> = expected.split(" | ").collect();
            assert!(matches!(columns.len(), 1 | 3), "{line}: Go's value and a reason, or neither");
            let sent = header(&jar, to);
            if sent != columns[0] {
                wrong.push(format!("{row}: {to} -> {sent}, the table has {}", columns[0]));
            }
            assert!(columns.len() == 1 || columns[0] != columns[1], "{line}: Go sends the same");
        } else {
            jar = Jar::default();
            row = line;
            rows += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(rows > 45 && requests > rows, "{rows} rows, {requests} requests");
}
