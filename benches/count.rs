//! Counts the instructions of a request beside hyper's bare connection, hyper-util's client and reqwest: the claim of BENCHMARKS.md,
//! section Instructions beside other clients.
//!
//! valgrind counts those of the client's process; the server is another one. Unlike times, the counts hardly depend on the machine's
//! load. Prints a table, which `-- --write` writes into BENCHMARKS.md. `-- WORDS` counts only the rows whose names contain all of these
//! words.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod peers;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use peers::work::{Bench, Kind, Work, possible};
use peers::{CLIENTS, Failed, Server};
use support::page;

/// The requests of the two runs of a client, as far as they can be shared by those in flight. Their difference leaves out what is done
/// once.
const FEW: usize = 200;
const MANY: usize = 1_200;

fn main() -> Result<(), Failed> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", row] => return serve(find(row)),
        ["run", row, number, each, address] => {
            let server = Server::at(address.parse()?);
            Bench::of(find(row), server).requests(number.parse()?, each.parse()?);
            return Ok(());
        }
        _ => {}
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let words: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    if has("--test") {
        // Without valgrind, which takes long.
        let work = find("HTTP/1.1, 1 in flight");
        let server = ServerProcess::start(work)?;
        return (0..CLIENTS.len()).try_for_each(|number| server.request(&[], work, number, 2).map(drop));
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("!! SKIPPED: valgrind is not installed (Debian: valgrind), so nothing was counted");
        return Ok(());
    }
    let mut text = "| instructions of a request | hyper's bare connection | speeddial | hyper-util's client | reqwest |\n|---|---|---|---|---|\n".to_owned();
    let rows = possible().filter(|work| work.kind == Kind::Warm && !work.setup.secure && !work.is_large());
    for work in rows.filter(|work| words.iter().all(|word| work.name.contains(*word))) {
        let [few, many] = [FEW, MANY].map(|requests| requests.div_ceil(work.in_flight));
        // At least some rounds: the first ones of many requests are unlike the later ones.
        let (few, many) = (few.max(3), many.max(8));
        let counts: Result<Vec<_>, _> = (0..CLIENTS.len()).map(|number| count(work, number, few, many)).collect();
        let cells: Vec<_> = counts?.iter().map(ToString::to_string).collect();
        let row = format!("| {} | {} |\n", work.name, cells.join(" | "));
        print!("{row}");
        text.push_str(&row);
    }
    if has("--write") { Ok(page::write("count", &text)?) } else { Ok(()) }
}

fn find(row: &str) -> Work {
    possible().find(|work| work.name == row).expect("a row of this name")
}

/// Serves until the process is killed.
fn serve(work: Work) -> Result<(), Failed> {
    println!("{}", Bench::server(work).address());
    loop {
        std::thread::park();
    }
}

/// A server in a process of its own, which ends when this is dropped.
struct ServerProcess {
    process: Child,
    address: String,
}

impl ServerProcess {
    fn start(work: Work) -> Result<Self, Failed> {
        let program = std::env::current_exe()?;
        let mut process = Command::new(program).args(["serve", work.name]).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(process.stdout.take().ok_or("it is piped")?).read_line(&mut address)?;
        Ok(Self { process, address: address.trim().to_owned() })
    }

    /// Makes requests with the client of number `number` in another process, whose program is that of `under` if it has one. Returns
    /// what it printed to stderr.
    fn request(&self, under: &[&str], work: Work, number: usize, each: usize) -> Result<String, Failed> {
        let program = std::env::current_exe()?.into_os_string().into_string().map_err(|_| "a path in UTF-8")?;
        let (number, each) = (number.to_string(), each.to_string());
        let line = [under, &[&program, "run", work.name, &number, &each, &self.address]].concat();
        let output = Command::new(line[0]).args(&line[1..]).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(text) } else { Err(text.into()) }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("the server ends");
    }
}

/// Returns the instructions of one request of the client of number `number`.
fn count(work: Work, number: usize, few: usize, many: usize) -> Result<u64, Failed> {
    let server = ServerProcess::start(work)?;
    let counted = |each: usize| -> Result<u64, Failed> {
        let under = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
        let text = server.request(&under, work, number, each)?;
        let count = text.lines().find_map(|line| line.split("Collected :").nth(1)).ok_or("a count")?;
        Ok(count.trim().parse()?)
    };
    let requests = (many - few) * work.in_flight;
    Ok((counted(many)? - counted(few)?) / requests as u64)
}
