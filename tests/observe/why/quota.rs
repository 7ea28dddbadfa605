//! A processor quota that is used up. The test makes a control group with a quota and runs itself once more in it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io, thread};

use hyper::Response;
use speeddial::Client;
use speeddial::trace::Cause;
use support::http_server::HttpServer;

use super::common::{ms, timings_of};

/// The variables that tell the process in the group what to call, and which group to enter.
const URL: &str = "SPEEDDIAL_QUOTA_URL";
const GROUP: &str = "SPEEDDIAL_QUOTA_GROUP";

/// A control group that may use a tenth of a processor: less than a busy machine leaves it.
struct Group(PathBuf);

impl Group {
    fn create() -> io::Result<Self> {
        let name = format!("speeddial-quota-{}", std::process::id());
        let old = PathBuf::from("/sys/fs/cgroup/cpu");
        let is_old = old.is_dir();
        let group = Self(if is_old { old } else { PathBuf::from("/sys/fs/cgroup") }.join(name));
        fs::create_dir(&group.0)?;
        match is_old {
            true => fs::write(group.0.join("cpu.cfs_quota_us"), "10000")?,
            false => fs::write(group.0.join("cpu.max"), "10000 100000")?,
        }
        // A file that is not written to may be one that nobody may write to.
        fs::OpenOptions::new().write(true).open(group.0.join("cgroup.procs"))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The process that was in it has ended, and is in it until its parent has seen that.
        let _ = fs::remove_dir(&self.0);
    }
}

#[tokio::test]
async fn a_processor_quota_is_named() {
    let group = match Group::create() {
        Ok(group) => group,
        Err(why) => return eprintln!("SKIPPED: no control group with a quota can be made: {why}"),
    };
    let server = HttpServer::start(|_| async {
        tokio::time::sleep(ms(20)).await;
        Response::new(support::full("late"))
    });
    let server = server.unwrap();
    let mut within = Command::new(std::env::current_exe().unwrap());
    within.args(["--exact", "observe::why::quota::calls_within_a_quota", "--ignored", "--nocapture"]);
    within.env(URL, format!("http://{}/", server.address())).env(GROUP, &group.0);
    let ended = tokio::task::spawn_blocking(move || within.status()).await.unwrap().unwrap();
    assert!(ended.success());
}

#[tokio::test]
#[ignore = "the other test runs it within a quota"]
async fn calls_within_a_quota() {
    let (Ok(url), Ok(group)) = (std::env::var(URL), std::env::var(GROUP)) else { return };
    fs::write(PathBuf::from(group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let is_over = is_over.clone();
        thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
    }
    let client = Client::builder().no_proxy().build().unwrap();
    let mut told = Vec::new();
    // The quota is read when a call was late: a second late call is explained.
    while told.len() < 100 {
        let timings = timings_of(client.get(&url)).await;
        let why = timings.why();
        let quota = why.reasons().iter().find(|reason| reason.cause == Cause::CpuQuota);
        if let Some(quota) = quota {
            assert!(
                timings.runtime_delay() >= ms(10) && quota.to_string().contains("a processor quota stopped"),
                "{why}"
            );
            return is_over.store(true, Ordering::Relaxed);
        }
        told.push(why.to_string());
    }
    panic!("{told:#?}");
}
