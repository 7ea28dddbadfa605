//! A network namespace of a test, entered by the thread that makes it.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace. It is deleted when this value is dropped.
pub struct Namespace {
    /// The name by which `ip netns` knows it.
    pub name: String,
    /// The process that plays the distant network.
    card: Option<Child>,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(card) = &mut self.card {
            let _ = card.kill();
            let _ = card.wait();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        let _ = std::fs::remove_dir_all(self.etc());
    }
}

impl Namespace {
    /// Returns the folder whose files replace those of /etc for programs that `ip netns exec` starts.
    pub fn etc(&self) -> std::path::PathBuf {
        std::path::Path::new("/etc/netns").join(&self.name)
    }

    /// Creates a namespace whose loopback works, and moves the calling thread into it.
    ///
    /// # Errors
    /// The process has no right to, or there is no `ip`.
    pub fn enter(name: &str) -> Result<Self, String> {
        let failure = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let namespace = Self { name: format!("speeddial-{name}-{}", std::process::id()), card: None };
        let made = Command::new("ip").args(["netns", "add", &namespace.name]).stderr(Stdio::null()).status();
        if !made.map_err(|error| failure("ip (Debian: iproute2)", &error))?.success() {
            return Err("no right to make a network namespace".to_owned());
        }
        let file =
            std::fs::File::open(format!("/run/netns/{}", namespace.name)).map_err(|error| failure("netns", &error))?;
        let only = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), only).map_err(|error| failure("setns", &error))?;
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()), "loopback");
        Ok(namespace)
    }

    /// Like [`Self::enter`], with a network device that delays its packets by 200 ms each way.
    ///
    /// # Errors
    /// As there, or there is no Python or no /dev/net/tun.
    pub fn with_distant_host() -> Result<Self, String> {
        let failure = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let mut namespace = Self::enter("far")?;
        // A child process is in the namespace of the thread that starts it.
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/far_away.py");
        let card = Command::new("python3").arg(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut card = card.map_err(|error| failure("python3", &error))?;
        let mut line = String::new();
        let stdout = card.stdout.take().ok_or("no output")?;
        namespace.card = Some(card);
        BufReader::new(stdout).read_line(&mut line).map_err(|error| failure("python3", &error))?;
        if line.trim() == "ready" {
            Ok(namespace)
        } else {
            Err("no network card can be made (/dev/net/tun)".to_owned())
        }
    }
}
