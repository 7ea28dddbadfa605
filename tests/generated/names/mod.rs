//! Names beside getaddrinfo and Go: random resolv.conf files and DNS servers, for each program in a network namespace of its own.
//!
//! Each name is looked up in three rounds, between which servers change what they do, addresses move, and answers expire. The three programs
//! find the same addresses, except as [`Excuse`] says.

mod world;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use speeddial::dns::{CachedResolver, Family, HickoryResolver, Resolver};
use support::namespace::Namespace;

use crate::factors::{is_chosen, number};
use world::{NAMES_EACH, ROUNDS, Servers, World};

/// The number of worlds of a round of the suite.
const WORLDS: u64 = 60;
/// The number of worlds at once. They wait for silent servers most of the time.
const AT_ONCE: u64 = 60;

/// The addresses of a name; none if the lookup failed.
type Found = BTreeSet<String>;

/// A program that looks names up, in a namespace of its own with the servers of a world.
struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    servers: Arc<Servers>,
    _namespace: Namespace,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts a program. Fails if no namespace can be made.
    fn start(world: &World, number: u64, who: &str, command: &mut Command) -> Result<Self, String> {
        // In a thread of its own, which enters the namespace for good.
        thread::scope(|scope| scope.spawn(|| Self::start_here(world, number, who, command)).join().unwrap())
    }

    fn start_here(world: &World, number: u64, who: &str, command: &mut Command) -> Result<Self, String> {
        let namespace = Namespace::enter(&format!("names{number}-{who}"))?;
        let write = |file: &str, text: &str| std::fs::write(namespace.etc().join(file), text);
        let written = std::fs::create_dir_all(namespace.etc())
            .and_then(|()| write("resolv.conf", &world.resolv_conf))
            .and_then(|()| write("hosts", "192.0.2.77 listed\n"))
            .and_then(|()| write("nsswitch.conf", "hosts: files dns\n"));
        written.map_err(|error| error.to_string())?;
        let servers = Servers::start(world.clone()).map_err(|error| error.to_string())?;
        let mut within = Command::new("ip");
        within.args(["netns", "exec", &namespace.name]).arg(command.get_program()).args(command.get_args());
        within.env("SPEEDDIAL_NAMES", who).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = within.spawn().expect("a program");
        let (input, output) = (child.stdin.take().expect("its input"), child.stdout.take().expect("its output"));
        Ok(Self { child, input, output: BufReader::new(output).lines(), servers, _namespace: namespace })
    }

    /// Starts this binary, which looks names up with getaddrinfo or as a client does.
    fn of_this_binary(world: &World, number: u64, who: &str) -> Result<Self, String> {
        let test = support::test_path(module_path!(), "the_names_of_the_input_are_looked_up");
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self::start(world, number, who, command.args(["--exact", &test, "--nocapture"]))
    }

    fn ask(&mut self, round: usize, name: &str) {
        self.servers.begin(round);
        writeln!(self.input, "{name}").expect("the program runs");
    }

    fn answer(&mut self) -> Found {
        let line = self.output.find_map(|line| line.expect("text").strip_prefix('=').map(str::to_owned));
        // Of a long answer a part is enough.
        line.expect("an answer").split_whitespace().take(4).map(str::to_owned).collect()
    }
}

/// The test above runs this one in namespaces. Without that it has no names and passes.
#[test]
fn the_names_of_the_input_are_looked_up() {
    let Ok(who) = std::env::var("SPEEDDIAL_NAMES") else { return };
    // A thread of its own drives what the cache does between lookups, unless each lookup has a runtime that ends with it.
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let kept = (who == "speeddial").then(runtime);
    let cache = CachedResolver::new(HickoryResolver::system());
    println!();
    for name in std::io::stdin().lines() {
        let name = name.unwrap();
        let mut found: Vec<_> = if who.starts_with("speeddial") {
            let lookup = async {
                let (v4, v6) = tokio::join!(cache.resolve(&name, Family::V4), cache.resolve(&name, Family::V6));
                [v4, v6].into_iter().flatten().flat_map(|answer| answer.addresses().to_vec()).collect()
            };
            match &kept {
                Some(runtime) => runtime.block_on(lookup),
                None => runtime().block_on(lookup),
            }
        } else {
            let found = std::net::ToSocketAddrs::to_socket_addrs(&(&*name, 0));
            found.into_iter().flatten().map(|address| address.ip()).collect()
        };
        found.sort_by_key(ToString::to_string);
        let text: String = found.iter().map(|address| format!(" {address}")).collect();
        println!("={text}");
    }
}

/// Builds the program in Go. Returns `None` if there is no Go.
fn go_program(folder: &Path) -> Option<PathBuf> {
    let go = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| Command::new(go).arg("version").output().is_ok())?;
    let program = folder.join("lookup");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated/names/lookup.go");
    let mut build = Command::new(go);
    let built = build.arg("build").arg("-o").arg(&program).arg(source).env("GOTOOLCHAIN", "local").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// A reason for which a client may find other addresses than both of the other programs.
#[derive(Debug, Clone, Copy)]
enum Excuse {
    /// No server answers: the cache serves what it has found before (RFC 8767).
    Stale,
    /// The name has moved while the first server is in trouble, and another one's word waits.
    Held,
    /// A packet was lost, and the attempts of resolv.conf are one: hickory sends a question again within its try.
    SentAgain,
}

impl Excuse {
    fn of(ours: &Found, before: &Found, world: &World, round: usize) -> Option<Self> {
        let is_true = ours.iter().all(|address| world.is_of(round, address));
        if world.lacks_its_first_server(round) && !ours.is_empty() && ours.is_subset(before) {
            Some(Self::Held)
        } else if ours.is_subset(before) {
            Some(Self::Stale)
        } else {
            (world.loses_the_only_packet(round) && is_true).then_some(Self::SentAgain)
        }
    }
}

/// The times after which a client has asked again: the longest pause after a failed lookup (`CachedResolverBuilder::failure_pause`), and the
/// one after a second failure while a stale answer is served. An answer is refreshed ahead of its end, and a question may wait for the answer
/// to the same one of before; these are over by then as well.
const ASKS_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];

/// A time before which no program gives up a server: each waits for a second, by resolv.conf. Servers that all answer at once take as long
/// on a busy machine alone, and what programs found then counts for nothing.
const LATE: Duration = Duration::from_millis(900);

/// A time within which each program answers, and sleeping ends, unless the machine is busy. What the cache got by then expires before the next
/// round; later, it may be served once more.
const LAG: Duration = Duration::from_millis(25);

/// The most late rounds of a name.
const MOST_LATE: usize = 20;

/// Looks all names up in all rounds, by each program. Returns what is not as it should be.
fn run(world: &World, number: u64, go: Option<&Path>) -> Result<Vec<String>, String> {
    let mut libc = Program::of_this_binary(world, number, "getaddrinfo")?;
    let who = if world.has_short_runtimes { "speeddial-short" } else { "speeddial" };
    let mut ours = Program::of_this_binary(world, number, who)?;
    let mut go = go.map(|go| Program::start(world, number, "go", &mut Command::new(go))).transpose()?;
    let mut wrong = Vec::new();
    let mut before = [const { Found::new() }; NAMES_EACH];
    // The last time at which the machine was seen to be busy.
    let mut busy_at = None::<Instant>;
    for round in 0..ROUNDS {
        for (name, before) in world.names.iter().zip(&mut before) {
            let mut ask_all = || {
                [Some(&mut libc), go.as_mut(), Some(&mut ours)]
                    .into_iter()
                    .flatten()
                    .for_each(|program| program.ask(round, name));
                (libc.answer(), go.as_mut().map(Program::answer), ours.answer())
            };
            // Where the others differ from each other, either will do.
            let agree = |(libc, go, ours): &(Found, Option<Found>, Found)| ours == libc || go.as_ref() == Some(ours);
            let is_excused = |(libc, go, ours): &(Found, Option<Found>, Found)| {
                if matches!(Excuse::of(ours, before, world, round), Some(Excuse::Held)) {
                    return true;
                }
                let is_lost = libc.is_empty() && go.as_ref().is_none_or(Found::is_empty);
                is_lost && Excuse::of(ours, before, world, round).is_some()
            };
            let has_trouble = world.has_trouble(round) || round > 0 && world.has_trouble(round - 1);
            let is_fine = |found: &_| agree(found) || is_excused(found);
            let mut pauses = ASKS_AGAIN_AFTER.into_iter();
            let mut late = 0;
            let found = loop {
                let start = Instant::now();
                let found = ask_all();
                if start.elapsed() >= LAG {
                    busy_at = Some(Instant::now());
                }
                if is_fine(&found) {
                    break found;
                }
                // What a later server said meanwhile waits for two seconds, and the answer after it comes in the background.
                let may_be_kept = 2 * world.lifetime() + ASKS_AGAIN_AFTER[0] + ASKS_AGAIN_AFTER[1];
                let was_busy = busy_at.is_some_and(|at| at.elapsed() < may_be_kept);
                // Of each family.
                let is_known = |address: &String| before.contains(address) || world.is_of(round, address);
                let is_kept_longer = was_busy && !found.2.is_empty() && found.2.iter().all(is_known);
                let is_late = !has_trouble && (start.elapsed() >= LATE || is_kept_longer) && late < MOST_LATE;
                let pause = match () {
                    () if is_late => Some(ASKS_AGAIN_AFTER[0]),
                    () if has_trouble || found.0.is_empty() => pauses.next(),
                    () => None,
                };
                late += usize::from(is_late);
                let Some(pause) = pause else { break found };
                thread::sleep(pause);
            };
            let is_fine = is_fine(&found);
            let (libc, go, ours) = found;
            if !is_fine {
                wrong.push(format!("round {round}, {name}: getaddrinfo {libc:?}, Go {go:?}, speeddial {ours:?}"));
            }
            if !ours.is_empty() {
                *before = ours;
            }
        }
        // What the cache keeps expires: the passing of time is what is tested.
        let (pause, start) = (world.lifetime() + Duration::from_millis(50), Instant::now());
        thread::sleep(pause);
        if start.elapsed() >= pause + LAG {
            busy_at = Some(Instant::now());
        }
    }
    Ok(wrong)
}

#[test]
fn names_have_the_addresses_that_getaddrinfo_and_go_find() {
    let seed = number("SEED", 1);
    let worlds = WORLDS * number("ROUNDS", 1).min(10);
    let folder = std::env::temp_dir().join(format!("speeddial-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let go = go_program(&folder);
    if go.is_none() {
        eprintln!("SKIPPED: go is not installed (Debian: golang-go)");
    }
    let next = AtomicU64::new(0);
    let wrong = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= worlds {
                        return;
                    }
                    let world = World::random(seed * 1_000_000 + number);
                    if !is_chosen(&world.seed) {
                        continue;
                    }
                    match run(&world, number, go.as_deref()) {
                        Ok(rows) if rows.is_empty() => {}
                        Ok(rows) => wrong.lock().unwrap().push(format!("{world}\n  {}", rows.join("\n  "))),
                        Err(why) => eprintln!("SKIPPED: no network namespace can be made: {why}"),
                    }
                }
            });
        }
    });
    std::fs::remove_dir_all(&folder).unwrap();
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {worlds} worlds differ:\n{}", wrong.len(), wrong.join("\n"));
}
