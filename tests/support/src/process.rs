//! The running program: its limit of descriptors, and once more in other processes, as a server and under valgrind.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Sets the number of descriptors that this process may open, to the most that the system allows if that is less. Returns the limit.
#[cfg(unix)]
pub fn set_descriptor_limit(to: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = to.min(maximum.unwrap_or(u64::MAX));
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
    limit
}

/// Allows this process at least as many descriptors as a test of many connections may need, whose servers it has as well. Systems often
/// allow 1,024 unless a process asks for more.
pub fn allow_descriptors() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        const ENOUGH: u64 = 16_384;
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            if getrlimit(Resource::Nofile).current.is_some_and(|limit| limit < ENOUGH) {
                set_descriptor_limit(ENOUGH);
            }
        });
    }
}

/// The pause of a server that could not take a connection. Where descriptors have run out, those of others become free.
const PAUSE: Duration = Duration::from_millis(10);

/// Takes the connections of a listener for as long as the test runs, also after descriptors had run out.
pub fn accepted(listener: TcpListener) -> impl Iterator<Item = TcpStream> {
    allow_descriptors();
    std::iter::repeat_with(move || listener.accept()).filter_map(|accepted| match accepted {
        Ok((socket, _)) => Some(socket),
        Err(_) => {
            std::thread::sleep(PAUSE);
            None
        }
    })
}

/// Takes the next connection, as [`accepted`] does.
pub async fn accept(listener: &tokio::net::TcpListener) -> tokio::net::TcpStream {
    allow_descriptors();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return socket,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Runs this program with these arguments to its end, and returns what it printed.
pub fn run(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = this_program().args(arguments).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// A server in a process of its own, which ends when this is dropped.
pub struct ServerProcess {
    process: Child,
    address: SocketAddr,
}

impl ServerProcess {
    /// Runs this program with these arguments, with which it has to [`serve_at`] an address.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = this_program();
        let mut process = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, address: line.trim().parse().unwrap() }
    }

    /// Returns the address that the server has told.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Tells the process that started this one the address of its server, which runs in other threads, and waits for the end of that
/// process.
#[allow(clippy::print_stdout, reason = "the other process reads it")]
pub fn serve_at(address: SocketAddr) {
    println!("{address}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Returns true if valgrind is installed; says that a bench is skipped otherwise.
#[allow(clippy::print_stdout, reason = "what is skipped is said")]
pub fn has_valgrind() -> bool {
    let is_there = Command::new("valgrind").arg("--version").output().is_ok();
    if !is_there {
        println!("!! SKIPPED: valgrind is not installed (Debian: valgrind), so nothing was counted");
    }
    is_there
}

/// Runs this program with these arguments under valgrind, and returns the number of instructions that a function of it took in user
/// space, those that it calls included.
pub fn count_instructions(function: &str, arguments: &[&str]) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--toggle-collect={function}")]);
    command.arg(std::env::current_exe().unwrap());
    let output = command.args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find_map(|line| line.split("Collected :").nth(1)).expect("a count");
    line.trim().parse().unwrap()
}
