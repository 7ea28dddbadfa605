//! The time for which a processor quota stopped the program, as Linux tells it of control groups (`cpu.stat`).

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use crate::clock::Instant;
use crate::sync::lock;
use crate::world;

/// The most bytes of a file that are read.
const MAX_FILE: u64 = 16 * 1024;

/// The most readings that are kept.
const MAX_READINGS: usize = 16;
/// The least time between two readings. Many calls are late together.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// The longest time between a reading and the start of a delay that the next one explains.
const LONGEST_BEFORE: Duration = Duration::from_secs(2);

/// The time for which the program was stopped, all processors together, within another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stopped {
    pub(crate) by: Duration,
    pub(crate) within: Duration,
}

/// The last readings.
struct Readings {
    /// Each with its time and the time for which the program had been stopped by then, the oldest first.
    kept: VecDeque<(Instant, Duration)>,
    /// The time at which the files were read last, whether or not they were there.
    read_at: Option<Instant>,
}

static READINGS: Mutex<Readings> = Mutex::new(Readings::NONE);

/// Returns the time for which quotas stopped the program while it was late by `late`, up to `now`, if that explains at least half of it
/// and there is a reading from shortly before: the quota is read only when the program was late.
pub(super) fn stopped(now: Instant, late: Duration) -> Option<Stopped> {
    let mut readings = lock(&READINGS);
    if readings.is_due(now)
        && let Some(stopped) = read(Path::new("/"))
    {
        readings.add(now, stopped);
    }
    readings.stopped_since(now - late).filter(|stopped| stopped.by >= late / 2)
}

impl Readings {
    const NONE: Self = Self { kept: VecDeque::new(), read_at: None };

    /// Returns true if the files are to be read, and takes it that they are.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.read_at.is_none_or(|at| now - at >= LEAST_INTERVAL);
        if is_due {
            self.read_at = Some(now);
        }
        is_due
    }

    fn add(&mut self, at: Instant, stopped: Duration) {
        if self.kept.back().is_some_and(|(_, before)| *before > stopped) {
            self.kept.clear(); // the program was moved to another group
        }
        if self.kept.len() == MAX_READINGS {
            self.kept.pop_front();
        }
        self.kept.push_back((at, stopped));
    }

    /// Returns the difference of the last reading and the last one that is from before `since`.
    fn stopped_since(&self, since: Instant) -> Option<Stopped> {
        let (at, stopped) = self.kept.back()?;
        let (before, stopped_before) = self.kept.iter().rev().find(|(at, _)| *at <= since)?;
        let stopped = Stopped { by: *stopped - *stopped_before, within: *at - *before };
        (since - *before <= LONGEST_BEFORE).then_some(stopped)
    }
}

/// Reads for how long the quotas of the program's control group, and of those around it, have stopped it; `None` if no file says.
fn read(root: &Path) -> Option<Duration> {
    let text = |path: &Path| String::from_utf8(world::read_file(path, MAX_FILE).ok()?).ok();
    let groups = text(&root.join("proc/self/cgroup"))?;
    // `4:cpu,cpuacct:/path`, or `0::/path` in version 2.
    let of_cpu = |line: &&str| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == "cpu"));
    let line = groups.lines().find(of_cpu).or_else(|| groups.lines().find(|line| line.starts_with("0::")))?;
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let mounted = root.join("sys/fs/cgroup").join(controllers);
    let path = Path::new(path.trim_start_matches('/'));
    // In a container, the path may be that of the host, and the group is mounted at the root.
    let files = path.ancestors().filter_map(|group| text(&mounted.join(group).join("cpu.stat")));
    files.filter_map(|file| parse(&file)).reduce(|sum, more| sum + more)
}

/// Returns the time for which a quota has stopped its group.
fn parse(cpu_stat: &str) -> Option<Duration> {
    let field = |name: &str| {
        let line = cpu_stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok())
    };
    field("throttled_usec").map(Duration::from_micros).or_else(|| field("throttled_time").map(Duration::from_nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_time_is_that_since_the_last_reading_before_the_delay() {
        let start = now();
        let at = |millis| start + ms(millis);
        let mut readings = Readings::NONE;
        assert_eq!(readings.stopped_since(at(0)), None);
        readings.add(at(0), ms(100));
        assert_eq!(readings.stopped_since(at(0)), Some(Stopped::default()), "a single reading says nothing");
        readings.add(at(100), ms(175));
        readings.add(at(200), ms(250));
        assert_eq!(readings.stopped_since(at(150)), Some(Stopped { by: ms(75), within: ms(100) }));
        assert_eq!(readings.stopped_since(at(99)), Some(Stopped { by: ms(150), within: ms(200) }));
        readings.add(at(9_000), ms(900));
        assert_eq!(readings.stopped_since(at(8_900)), None, "it is not known when the program was stopped");
        readings.add(at(9_010), ms(5));
        assert_eq!(readings.stopped_since(at(9_000)), None, "the program is in another group now");
        (0..99).for_each(|nth| readings.add(at(10_000 + nth), ms(900)));
        assert_eq!(readings.kept.len(), MAX_READINGS);
    }

    #[test]
    fn many_calls_that_are_late_together_read_the_files_once_also_where_there_are_none() {
        let (mut readings, start) = (Readings::NONE, now());
        let due = [0, 0, 9, 10, 19, 20].map(|at| readings.is_due(start + ms(at)));
        assert_eq!(due, [true, false, false, true, false, true]);
        assert_eq!(readings.stopped_since(start), None);
    }

    #[test]
    fn both_versions_of_control_groups_are_read_with_those_around_them() {
        let root = std::env::temp_dir().join(format!("speeddial-quota-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let wipe = || drop(std::fs::remove_dir_all(&root));
        wipe();
        assert_eq!(read(&root), None, "no control groups");
        write("proc/self/cgroup", "0::/a/b\n");
        assert_eq!(read(&root), None);
        write("sys/fs/cgroup/cpu.stat", "usage_usec 9\nuser_usec 9\n");
        assert_eq!(read(&root), None, "no quota counts");
        write("sys/fs/cgroup/a/cpu.stat", "usage_usec 9\nnr_throttled 1\nthrottled_usec 75000\n");
        assert_eq!(read(&root), Some(ms(75)));
        write("sys/fs/cgroup/a/b/cpu.stat", "throttled_usec 25000\n");
        assert_eq!(read(&root), Some(ms(100)));
        wipe();
        write("proc/self/cgroup", "3:cpuset:/x\n2:cpu,cpuacct:/host/path\n0::/y\n");
        write("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 2\nnr_throttled 1\nthrottled_time 75000000\n");
        assert_eq!(read(&root), Some(ms(75)));
        wipe();
    }
}
