//! Counts the instructions of a request beside hyper's bare connection, hyper-util's client and reqwest: the claim of BENCHMARKS.md,
//! section Instructions beside other clients.
//!
//! valgrind counts those of the client's process; the server is another one. Unlike times, the counts hardly depend on the machine's
//! load. Prints a table, which `-- --write` writes into BENCHMARKS.md. `-- WORDS` counts only the rows whose names contain all of these
//! words.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod peers;

use peers::work::{Bench, Kind, Work, possible};
use peers::{CLIENTS, Failed, Server};
use support::page;
use support::process::{ServerProcess, count_instructions, has_valgrind, serve_at};

/// The requests of the two runs of a client, as far as they can be shared by those in flight. Their difference leaves out what is done
/// once.
const FEW: usize = 200;
const MANY: usize = 1_200;

fn main() -> Result<(), Failed> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", row] => {
            serve_at(Bench::server(find(row)).address());
            return Ok(());
        }
        ["run", row, number, each, address] => return request(find(row), number, each, address),
        _ => {}
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    if has("--test") {
        // Without valgrind, which takes long.
        let work = find("HTTP/1.1, 1 in flight");
        let server = ServerProcess::start(&["serve", work.name]);
        let address = server.address().to_string();
        return (0..CLIENTS.len()).try_for_each(|number| request(work, &number.to_string(), "2", &address));
    }
    if !has_valgrind() {
        return Ok(());
    }
    let mut text = "| instructions of a request | hyper's bare connection | speeddial | hyper-util's client | reqwest |\n|---|---|---|---|---|\n".to_owned();
    let rows = possible().filter(|work| work.kind == Kind::Warm && !work.setup.secure && !work.is_large());
    for work in rows.filter(|work| words.iter().all(|word| work.name.contains(*word))) {
        let [few, many] = [FEW, MANY].map(|requests| requests.div_ceil(work.in_flight));
        // At least some rounds: the first ones of many requests are unlike the later ones.
        let (few, many) = (few.max(3), many.max(8));
        let cells: Vec<_> = (0..CLIENTS.len()).map(|number| count(work, number, few, many).to_string()).collect();
        let row = format!("| {} | {} |\n", work.name, cells.join(" | "));
        print!("{row}");
        text.push_str(&row);
    }
    if has("--write") { Ok(page::write("count", &text)?) } else { Ok(()) }
}

fn find(row: &str) -> Work {
    possible().find(|work| work.name == row).expect("a row of this name")
}

/// Makes requests with the client of number `number`.
fn request(work: Work, number: &str, each: &str, address: &str) -> Result<(), Failed> {
    let bench = Bench::of(work, Server::at(address.parse()?));
    counted(&bench, number.parse()?, each.parse()?);
    Ok(())
}

/// The part that is counted. What comes before depends on chance: aws-lc gathers entropy for the clients that use TLS.
#[inline(never)]
fn counted(bench: &Bench, number: usize, each: usize) {
    bench.requests(number, each);
}

/// Returns the instructions of one request of the client of number `number`.
fn count(work: Work, number: usize, few: usize, many: usize) -> u64 {
    let server = ServerProcess::start(&["serve", work.name]);
    let (number, address) = (number.to_string(), server.address().to_string());
    let counted =
        |each: usize| count_instructions("count::counted", &["run", work.name, &number, &each.to_string(), &address]);
    (counted(many) - counted(few)) / ((many - few) * work.in_flight) as u64
}
